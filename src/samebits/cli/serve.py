"""`samebits serve`: the model behind OpenAI's API."""

from __future__ import annotations

import logging
import os
import signal
import socket
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

from rich.console import Console

from samebits.cli import flags
from samebits.cli.model_options import fetch_model, make_llm, progress_bar, settings_command
from samebits.core.errors import BadInput, Unavailable
from samebits.core.tiers import Tier
from samebits.loaders.cache import resolve
from samebits.receipts.signing import read_private_key

PANEL = "Limits"
KEY_VARIABLE = "SAMEBITS_API_KEY"


def _limit(text: str, **bounds: Any) -> Any:
    return flags.Option(help=text, panel=PANEL, **bounds)


@settings_command
def serve(
    settings: SimpleNamespace,
    host: Annotated[str, flags.Option(envvar="SAMEBITS_HOST", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, flags.Option(envvar="SAMEBITS_PORT", help="The port; 0 takes a free one.", min=0, max=65535)
    ] = 8000,
    api_key: Annotated[
        str | None, flags.Option(envvar=KEY_VARIABLE, help="The key that every route but /health asks for.")
    ] = None,
    cors_origin: Annotated[
        list[str], flags.Option(help="A site whose pages may call the API; may be given several times.")
    ] = [],  # noqa: B006
    served_name: Annotated[str | None, flags.Option(help="The name by which clients call the model.")] = None,
    deterministic: Annotated[
        bool, flags.Option("--deterministic", help="The same request gives the same choices and usage, always.")
    ] = False,
    tool_form: Annotated[
        str, flags.Option(help="How the model writes calls of tools, where its chat template does not tell.")
    ] = "auto",
    reasoning_form: Annotated[
        str, flags.Option(help="The marks around the model's reasoning, where its chat template does not tell.")
    ] = "auto",
    receipts: Annotated[
        float, flags.Option(help="Keep receipts of all answers for so many seconds, at /v1/receipts/ID.", min=0)
    ] = 0.0,
    sign_key: Annotated[
        Path | None, flags.Option("--sign-key", help="Sign receipts with the Ed25519 private key in this PEM file.")
    ] = None,
    max_waiting: Annotated[int, _limit("Requests that may wait in the queue; further ones get 503.", min=1)] = 256,
    max_body_bytes: Annotated[int, _limit("The most bytes in a request's body.", min=1)] = 4 << 20,
    max_prompts: Annotated[int, _limit("The most prompts in one request.", min=1)] = 128,
    max_samples: Annotated[int, _limit("The most answers per prompt, n.", min=1, max=128)] = 16,
    max_stops: Annotated[int, _limit("The most stop strings in a request.", min=1)] = 16,
    grammar_seconds: Annotated[float, _limit("CPU time for compiling a response format.", min=0.01)] = 1.0,
    deadline_seconds: Annotated[float, _limit("Time for a whole answer.", min=0.1)] = 600.0,
    drain_seconds: Annotated[
        float, _limit("Time for the answers under way when the server is told to stop.", min=1)
    ] = 30.0,
    max_connections: Annotated[int, _limit("Connections in all, as far as there are file descriptors.", min=1)] = 512,
    max_address_connections: Annotated[
        int, _limit("Connections from one address; behind a proxy that means all of them.", min=1)
    ] = 256,
    arrival_seconds: Annotated[
        float, _limit("Time for a request's head to arrive; a large body gets more.", min=0.1)
    ] = 20.0,
    stall_seconds: Annotated[float, _limit("Time for which a client may leave its answer unread.", min=0.1)] = 30.0,
    stay: Annotated[
        bool, flags.Option("--stay", help="Stay, and say why in /health, where the model cannot be loaded.")
    ] = False,
    verbose: Annotated[bool, flags.Option("--verbose", help="Write a log line for every request.")] = False,
) -> None:
    """Serve a model over HTTP: chat, completions, embeddings, and a page to look at."""
    flags = dict(locals())  # those of the panel have the names of Limits' fields
    try:
        from samebits.server.http.security import Door
        from samebits.server.limits import Limits
        from samebits.server.logs import log_to_stderr
        from samebits.server.model import ServedModel
        from samebits.server.receipts import ReceiptDesk
        from samebits.server.run import make_server
        from samebits.server.turns.model_forms import FormChoice
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        raise Unavailable(f"serve: {missing} is not installed; needs pip install 'samebits[server]'") from None
    console = Console(stderr=True)
    if deterministic and settings.numerics == Tier.FAST.label:
        raise BadInput("serve", "--numerics", "fast", "invariant or portable, with --deterministic")
    if receipts and settings.numerics == Tier.FAST.label:
        raise BadInput("serve", "--numerics", "fast", "invariant or portable, with --receipts")
    key = os.environ.get(KEY_VARIABLE) if api_key is None else api_key  # click takes an empty variable for none
    door = Door(key, tuple(cors_origin))
    log_to_stderr(logging.INFO if verbose else logging.WARNING)
    with progress_bar(console) as progress:
        fetch_model(settings.model, progress)
    name = served_name or Path(settings.model).name
    listening = _listen(host, port)

    def settled(served: ServedModel) -> None:
        """The address is told when it can be used; a server without a model ends, unless it is to stay."""
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        if served.failure is None:
            console.print(f"{name} is ready at {address}, the API under /v1", style="dim", highlight=False)
        elif stay:
            served.log_settled()
            console.print(f"{address}/health says that {name} cannot be served", style="dim", highlight=False)
        else:
            failures.append(served.failure)
            server.should_exit = True

    failures: list[str] = []
    server = make_server(
        lambda: make_llm(**vars(settings)),
        name,
        Path(resolve(settings.model)),
        host=host,
        port=port,
        door=door,
        limits=Limits(**{field.name: flags[field.name] for field in fields(Limits)}),
        is_deterministic=deterministic,
        form_choice=FormChoice(tool_form, reasoning_form),
        desk=ReceiptDesk(read_private_key(sign_key) if sign_key else None, receipts),
        on_settled=settled,
    )
    console.print(f"loading {name}", style="dim", highlight=False)
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn drains at a signal, then raises it again for us
        signal.signal(number, lambda *_: None)
    server.run(sockets=[listening])
    if failures:
        raise Unavailable(f"serve: {name} cannot be served: {failures[0]}")


def _listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections; Unavailable with the reason where there can be none."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise Unavailable(f"serve: cannot listen on {host}:{port}: {error.strerror or error}") from None
