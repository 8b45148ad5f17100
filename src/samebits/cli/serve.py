"""`samebits serve`: the model behind OpenAI's API."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import click
from rich.console import Console

from samebits.cli import flags
from samebits.cli.loading_line import LoadingLine
from samebits.cli.model_options import (
    fetch_model,
    make_llm,
    progress_bar,
    settings_command,
    stated_options,
    with_options,
)
from samebits.cli.model_words import model_named_once
from samebits.cli.serve_replicas import replicated
from samebits.cli.server_notes import noted
from samebits.core.collector import leave_out_what_is_there
from samebits.core.errors import BadInput, Unavailable
from samebits.core.installing import install_command
from samebits.core.tiers import Tier
from samebits.loaders.cache import resolve
from samebits.receipts.signing import read_private_key
from samebits.server.limits import Limits

if TYPE_CHECKING:  # an extra, and slow to import
    from samebits.api.llm import LLM
    from samebits.server.kv_events.publisher import KvEventPublisher

CLUSTER = "Clusters"
KEY_VARIABLE = "SAMEBITS_API_KEY"


def limits_command(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command(limits=...)` an option for each bound on requests."""
    options = stated_options(Limits)

    def call(**given: Any) -> None:
        command(limits=Limits(**{name: given.pop(name) for name in options}), **given)

    return with_options(command, options, {"limits"}, call)


@settings_command
@limits_command
def serve(
    settings: SimpleNamespace,
    limits: Limits,
    model_word: Annotated[
        str | None, flags.Argument(metavar="[MODEL]", help="The model to serve, in place of --model.")
    ] = None,
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
    open_metrics: Annotated[
        bool,
        flags.Option(
            "--open-metrics",
            envvar="SAMEBITS_OPEN_METRICS",
            help="Let /metrics be read without the key, as cluster schedulers do.",
            panel=CLUSTER,
        ),
    ] = False,
    kv_events: Annotated[
        str | None,
        flags.Option(
            "--kv-events",
            envvar="SAMEBITS_KV_EVENTS",
            help="Tell routers which prompts the cache holds, at an address such as tcp://*:5557. The server listens "
            "on its own addresses and connects to others. Whoever can connect to it can read the prompts' tokens.",
            panel=CLUSTER,
        ),
    ] = None,
    kv_events_replay: Annotated[
        str | None,
        flags.Option(
            "--kv-events-replay",
            envvar="SAMEBITS_KV_EVENTS_REPLAY",
            help="Repeat events for routers that have missed some, at an address such as tcp://*:5558.",
            panel=CLUSTER,
        ),
    ] = None,
    kv_events_topic: Annotated[
        str | None,
        flags.Option(
            "--kv-events-topic",
            envvar="SAMEBITS_KV_EVENTS_TOPIC",
            help="The topic of events; kv@HOSTNAME:PORT@MODEL if absent.",
            panel=CLUSTER,
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        flags.Option(help="Run so many replicas of the model, each in a process of its own, on Ray Serve.", min=1),
    ] = None,
    ray_address: Annotated[
        str | None,
        flags.Option("--ray-address", help="The Ray cluster for the replicas, or auto; this machine alone if absent."),
    ] = None,
    routing: Annotated[
        str, flags.Option(help="Which replica gets a request: prefix, where its prompt is known, or power-of-two.")
    ] = "prefix",
    stay: Annotated[
        bool, flags.Option("--stay", help="Stay, and say why in /health, where the model cannot be loaded.")
    ] = False,
    verbose: Annotated[bool, flags.Option("--verbose", help="Write a log line for every request.")] = False,
) -> None:
    """Serve a model over HTTP: chat, completions, embeddings, and a page to look at."""
    settings.model = model_named_once("serve", model_word)
    try:
        from samebits.server.http.security import Door
        from samebits.server.logs import log_to_stderr
        from samebits.server.model import ServedModel
        from samebits.server.receipts import ReceiptDesk
        from samebits.server.relay.model import RelayedModel
        from samebits.server.run import check_host, http_server, make_server
        from samebits.server.turns.model_forms import FormChoice
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        raise Unavailable(f"serve: {missing} is not installed; needs {install_command('server')}") from None
    console = Console(stderr=True)
    if deterministic and settings.numerics == Tier.FAST.label:
        raise BadInput("serve", "--numerics", "fast", "invariant or portable with --deterministic")
    if receipts and settings.numerics == Tier.FAST.label:
        raise BadInput("serve", "--numerics", "fast", "invariant or portable with --receipts")
    key = os.environ.get(KEY_VARIABLE) if api_key is None else api_key  # click takes an empty variable for none
    door = Door(key, tuple(cors_origin), host, has_open_metrics=open_metrics)
    check_host(door)  # before anything listens
    if kv_events is None and (kv_events_replay or kv_events_topic):
        option = "--kv-events-replay" if kv_events_replay else "--kv-events-topic"
        raise BadInput("serve", option, kv_events_replay or kv_events_topic, "--kv-events as well")
    if kv_events is not None and (replicas is not None or ray_address is not None):
        raise BadInput("serve", "--kv-events", kv_events, "a server without replicas: those have caches of their own")
    log_to_stderr(logging.INFO if verbose else logging.WARNING)
    with progress_bar(console) as progress:
        fetch_model(settings.model, progress)
    name = served_name or Path(settings.model).name
    listening = click.get_current_context().with_resource(_listen(host, port))  # closed whatever goes wrong
    own_port = listening.getsockname()[1]
    address = f"http://{f'[{host}]' if ':' in host else host}:{own_port}"
    publisher = None
    if kv_events is not None:
        topic = kv_events_topic or f"kv@{socket.gethostname()}:{own_port}@{name}"
        publisher, description = _publisher(kv_events, kv_events_replay, topic)
        console.print(description, style="dim", highlight=False, markup=False, soft_wrap=True)

    def settled(served: ServedModel) -> None:
        """The address is told when it can be used; a server without a model ends, unless it is to stay."""
        leave_out_what_is_there()
        line.clear()
        if served.failure is None:
            if served.division is not None:
                say(served.division.line())
            console.print(
                f"{name} is ready at {address}, the API under /v1", style="dim", highlight=False, markup=False
            )
        elif stay:
            served.log_settled()
            console.print(
                f"{address}/health says that {name} cannot be served", style="dim", highlight=False, markup=False
            )
        else:
            failures.append(served.failure)
            server.should_exit = True

    def say(text: str) -> None:
        console.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)

    def stopping(text: str) -> None:
        line.clear()
        say(text)

    is_loading = threading.Event()

    def load() -> LLM:
        is_loading.set()
        try:
            return make_llm(**vars(settings), compile_progress=line.show_compiling)
        finally:
            is_loading.clear()

    failures: list[str] = []
    line = LoadingLine()
    choice = FormChoice(tool_form, reasoning_form)
    desk = ReceiptDesk(read_private_key(sign_key) if sign_key else None, receipts)
    if replicas is not None or ray_address is not None:
        joined = RelayedModel(name, limits, deterministic, choice, desk)
        join = replicated(joined, settings, replicas or 1, ray_address, routing, own_port)
        server = http_server(joined, join, host=host, port=port, door=door, on_settled=settled, on_stopping=stopping)
    else:
        server = make_server(
            load,
            name,
            Path(resolve(settings.model)),
            host=host,
            port=port,
            door=door,
            limits=limits,
            is_deterministic=deterministic,
            form_choice=choice,
            desk=desk,
            publisher=publisher,
            on_settled=settled,
            on_stopping=stopping,
        )
    console.print(f"loading {name}", style="dim", highlight=False, markup=False)
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn drains at a signal, then raises it again for us
        signal.signal(number, lambda *_: None)
    with noted(name, address):
        server.run(sockets=[listening])
    if failures:
        raise Unavailable(f"serve: {name} cannot be served: {failures[0]}")
    if is_loading.is_set():  # Python would wait for all threads that load the model
        line.clear()
        sys.stderr.flush()
        os._exit(0)


def _publisher(address: str, replay_address: str | None, topic: str) -> tuple[KvEventPublisher, str]:
    """Return what tells routers of the cache, its sockets open, and lines that say where it listens or connects to."""
    try:
        from samebits.server.kv_events.publisher import KvEventPublisher
        from samebits.server.kv_events.sockets import EventSockets
    except ModuleNotFoundError as error:
        missing = {"zmq": "pyzmq"}.get(str(error.name), error.name)
        raise Unavailable(f"serve: {missing} is not installed; needs {install_command('kv-events')}") from None
    sockets = EventSockets(address, replay_address, topic)
    return KvEventPublisher(sockets), sockets.description


def _listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections; Unavailable with the reason where there can be none."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Unavailable(
                f"port {port} of {host} is in use; choose another with --port (0 takes a free one)"
            ) from None
        raise Unavailable(f"serve: cannot listen on {host}:{port}: {error.strerror or error}") from None
