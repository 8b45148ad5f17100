"""The page: the files of the folder `page`, which load nothing from anywhere else."""

from __future__ import annotations

from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
# A model's text is nobody's we know: no inline script, and no string that becomes markup (trusted types).
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
# All there is, read once: no name in a request reaches the file system.
FILES = {
    item.name: (item.read_bytes(), MEDIA_TYPES[item.name.rpartition(".")[2]])
    for item in files("samebits.server").joinpath("page").iterdir()
    if item.name.rpartition(".")[2] in MEDIA_TYPES
}


def _file(name: str) -> Response:
    content, media_type = FILES[name]
    return Response(content, media_type=media_type, headers=HEADERS)


async def page(request: Request) -> Response:
    """The page itself."""
    return _file("index.html")


async def page_file(request: Request) -> Response:
    """One of its styles or scripts; 404 for any other name."""
    name = request.path_params["name"]
    if name not in FILES:
        raise HTTPException(404)
    return _file(name)
