"""`spinney cloud certs`: certificates for TLS, signed by a CA of your own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from spinney.configuring import ConfigurationError

from .certs import CA, Certificates, CertificatesError
from .data_option import add_data_options, configuration_of

EPILOG = """\
Certificates are in DATA/certs. To use them:
  spinney cloud --mqtt-tls-certificate DATA/certs/server.crt --mqtt-tls-key DATA/certs/server.key
and the same with --http-tls-... and --nats-tls-...; clients trust DATA/certs/ca.crt. After `certs renew server` send
SIGHUP to the cloud: connections stay, new ones see the new certificate.

examples:
  spinney cloud certs init
  spinney cloud certs server cloud.example.org 192.0.2.7
  spinney cloud certs client pi-3
  spinney cloud certs show

exit codes: 0 done, 1 refused, 2 wrong use"""


def main(arguments: list[str]) -> int:
    """The command; exit code 0 done, 1 refused, 2 wrong use."""
    options = _parser().parse_args(arguments)
    try:
        act: Callable[[argparse.Namespace, Certificates], None] = options.act
        act(options, Certificates(configuration_of(options).settings.data))
    except (CertificatesError, ConfigurationError, OSError) as error:
        print(f"spinney cloud certs: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney cloud certs",
        description="Make and show certificates for TLS.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="init | server | client | renew | show")
    for name, summary, act in (
        ("init", "make the CA", _init),
        ("server", "make the cloud's certificate", _server),
        ("client", "make a certificate for a user", _client),
        ("renew", "put a new one in the place of one, for the same names", _renew),
        ("show", "list what there is, and until when", _show),
    ):
        command = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_data_options(command)
        command.set_defaults(act=act)
        if name == "server":
            command.add_argument("host", nargs="+", help="names and addresses under which clients reach it")
        if name == "client":
            command.add_argument("name", help="the user")
        if name == "renew":
            command.add_argument("name", help="server, or client-NAME")
        if name in ("init", "server", "client"):
            command.add_argument("--force", action="store_true", help="in the place of another")
    return parser


def _init(options: argparse.Namespace, certificates: Certificates) -> None:
    print(f"wrote {certificates.make_ca(force=options.force)}, which clients must trust")


def _server(options: argparse.Namespace, certificates: Certificates) -> None:
    if not certificates.path(CA).exists():
        _init(argparse.Namespace(force=False), certificates)
    print(f"wrote {certificates.make_server(options.host, force=options.force)} for {', '.join(options.host)}")


def _client(options: argparse.Namespace, certificates: Certificates) -> None:
    print(f"wrote {certificates.make_client(options.name, force=options.force)}")


def _renew(options: argparse.Namespace, certificates: Certificates) -> None:
    print(f"wrote {certificates.renew(options.name)}; send SIGHUP to the cloud")


def _show(_options: argparse.Namespace, certificates: Certificates) -> None:
    for shown in certificates.show():
        remarks = [*shown.hosts, *(["EXPIRES SOON"] if shown.expires_soon else [])]
        remarks += [] if shown.signed_by_us else ["NOT SIGNED BY THIS CA"]
        print(f"{shown.name:<20} {shown.subject:<24} until {shown.until:%Y-%m-%d}  {' '.join(remarks)}".rstrip())
