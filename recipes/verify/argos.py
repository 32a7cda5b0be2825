"""Installs a package and translates standard input with Argos Translate. The environment has no nmt.

python argos.py PACKAGE < INPUT > OUTPUT
"""

import sys

from argostranslate import package, translate


def main() -> None:
    package.install_from_path(sys.argv[1])
    (installed,) = package.get_installed_packages()
    for line in sys.stdin:
        print(translate.translate(line.removesuffix("\n"), installed.from_code, installed.to_code))


main()
