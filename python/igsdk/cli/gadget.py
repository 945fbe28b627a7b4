# SPDX-License-Identifier: Apache-2.0
"""``igsdk gadget``: images of gadgets, from source to a registry."""

from __future__ import annotations

import click

from igsdk._errors import UsageError
from igsdk.cli import output

_plain_http = click.option(
    "--plain-http", is_flag=True, help="Without TLS, for a registry of this machine."
)
_timeout = click.option(
    "--timeout",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0.1, max=3600),
    metavar="S",
    help="Seconds to wait for the registry's next word.",
)


@click.group(
    short_help="Build, sign, push and inspect images of gadgets.", invoke_without_command=True
)
@click.pass_context
def gadget(context: click.Context) -> int:
    """Makes images of gadgets for Inspektor Gadget, and shows what is in them.

    \b
        igsdk gadget build mygadget -o mygadget.tar
        igsdk gadget inspect mygadget.tar
        igsdk gadget push mygadget.tar registry.example.com/team/mygadget:v1

    A gadget is a folder with program.bpf.c and gadget.yaml.
    """
    if context.invoked_subcommand is None:
        output.say(context.get_help().rstrip(), prefix="")
        return UsageError.exit_code
    return 0


@gadget.command(short_help="Compile, check and pack a gadget.")
@click.argument("folder", metavar="DIR", default=".")
@click.option(
    "-o",
    "path",
    required=True,
    metavar="FILE|DIR",
    help="A tar file that `ig image import` takes; a folder where it exists or ends with /.",
)
@click.option("-I", "includes", multiple=True, metavar="DIR", help="A folder of headers.")
@click.option("--tag", default="", metavar="NAME", help="The image's name; else the gadget's.")
@click.option(
    "--lenient", is_flag=True, help="What gadget.yaml says in vain is a warning, not an error."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def build(
    folder: str, path: str, includes: tuple[str, ...], tag: str, lenient: bool, as_json: bool
) -> None:
    """Compiles the gadget in DIR for amd64 and arm64, checks it, and writes its image.

    Needs clang and llvm-strip, and the headers that the program includes.

    What gadget.yaml says is compared with the compiled program: a field, parameter,
    program or annotation that does not exist is an error with its line. With
    SOURCE_DATE_EPOCH set, the same source gives the same bytes.
    """
    from igsdk.image import layout
    from igsdk.image.build import build as build_image

    built = build_image(folder, includes, tag, lenient)
    for warning in built.warnings:
        output.say(f"warning: {warning}")
    layout.write(built.layout, path, built.created)
    if as_json:
        record = {"path": path, "name": built.name, "digest": built.digest}
        output.put_json({**record, "warnings": built.warnings})
    else:
        output.put(f"{path}: {built.name}, {built.digest}")


@gadget.command(short_help="Bring an image to a registry.")
@click.argument("image", metavar="FILE|DIR")
@click.argument("reference")
@_plain_http
@_timeout
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def push(image: str, reference: str, plain_http: bool, timeout: float, as_json: bool) -> None:
    """Brings an image to a registry, byte for byte, with its signatures.

    \b
        igsdk gadget push mygadget.tar registry.example.com/team/mygadget:v1

    Logins are those of `docker login`. The tag is set last: what is interrupted leaves
    none behind. An authority of your own goes into the variable SSL_CERT_FILE.
    """
    from igsdk.image import layout, places

    found = layout.read(image)
    registry, parsed = places.find_registry(reference, plain_http, timeout, output.say)
    digest = registry.push(found, parsed)
    if as_json:
        output.put_json({"name": str(parsed), "digest": digest})
    else:
        output.put(f"{parsed}: {digest}")


@gadget.command(short_help="Sign an image with a key.")
@click.argument("image", metavar="FILE|DIR|REFERENCE")
@click.option("--key", required=True, metavar="FILE", help="A private ECDSA P-256 key in PEM.")
@_plain_http
@_timeout
def sign(image: str, key: str, plain_http: bool, timeout: float) -> None:
    """Signs an image, so that Inspektor Gadget takes it with the public key.

    \b
        openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key.pem
        openssl pkey -in key.pem -pubout -out key.pub
        igsdk gadget sign mygadget.tar --key key.pem

    In a file or folder the signature goes along when it is pushed; in a registry it is
    put beside the image, where cosign puts its own. A password for the key is taken
    from the variable COSIGN_PASSWORD.
    """
    from igsdk.image import layout, names, places
    from igsdk.image import sign as signing

    private = signing.read_key(key)
    if places.is_local(image):
        found = layout.read(image)
        name = names.parse(layout.entry_name(found.image()) or "unnamed").name
        signing.sign(found, private, name)
        layout.write(found, image, layout.modified(found))
    else:
        registry, reference = places.find_registry(image, plain_http, timeout, output.say)
        found = registry.pull(reference)
        signing.sign(found, private, reference.name)
        registry.push_signature(found)
    output.put(f"{image}: signed {found.image()['digest']}")


@gadget.command(short_help="Show what an image consists of.")
@click.argument("image", metavar="FILE|DIR|REFERENCE")
@_plain_http
@_timeout
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def inspect(image: str, plain_http: bool, timeout: float, as_json: bool) -> None:
    """Shows an image: its parts with digests checked, parameters, data sources, fields.

    A file or folder of that name is read; else a registry is asked for it.
    """
    from igsdk.image import places
    from igsdk.image.explained import explain
    from igsdk.image.inspection import inspect as inspect_image

    record = inspect_image(places.read(image, plain_http, timeout, output.say))
    if as_json:
        output.put_json(record)
    else:
        output.put(explain(record, output.width()))
