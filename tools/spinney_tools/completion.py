"""`spinney completion`: what makes a shell complete this command, made from the commands' own parsers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Final

from spinney_tools.command_tree import Node, tree

_EPILOG = """\
examples:
  source <(./spinney completion bash)                                   for this shell; in ~/.bashrc: for all
  source <(./spinney completion zsh)                                    the same, after compinit; ~/.zshrc
  ./spinney completion fish | source                                    the same; ~/.config/fish/config.fish
  spinney completion zsh > "${fpath[1]}/_spinney"                       where zsh looks for it, then a new shell
  spinney completion fish > ~/.config/fish/completions/spinney.fish     the same, with spinney on PATH

It knows the commands that are installed: make it again after installing another extra.
exit codes: 0 done, 2 wrong use
"""


def main(arguments: list[str]) -> int:
    """Runs `spinney completion` and returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="spinney completion",
        description="Print what makes a shell complete commands, options and their values.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS)
    options = parser.parse_args(arguments)
    print(SHELLS[options.shell](tree()), end="")
    return 0


def _words(node: Node) -> str:
    return " ".join([*node.commands, *node.words, *node.options])


def _places(top: Node) -> list[str]:
    """All commands as paths, such as /mobile/run."""
    return ["/" + "/".join(path) for path, _ in top.walk() if path]


def _cases(top: Node) -> list[tuple[str, str]]:
    """Where one is, as `/mobile/run` or `/up --source`, and the words that may come."""
    found = []
    for path, node in top.walk():
        place = "".join(f"/{name}" for name in path)
        found += [(f"{place} {option}", " ".join(values)) for option, values in node.values.items()]
        found.append((place, _words(node)))
    return found


def _bash(top: Node) -> str:
    cases = "\n".join(f"    {_quoted(place)}) words={_quoted(words)} ;;" for place, words in _cases(top))
    return f"""\
# bash completion of spinney, made by `spinney completion bash`
_spinney() {{
  local at= word words= cur=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$at/$word" in
    {"|".join(_places(top))}) at="$at/$word" ;;
    esac
  done
  _spinney_words "$at $before" || _spinney_words "$at"
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
_spinney_words() {{
  case "$1" in
{cases}
    *) return 1 ;;
  esac
}}
complete -o default -F _spinney spinney ./spinney
"""


def _zsh(top: Node) -> str:
    cases = "\n".join(f"    {_quoted(place)}) found=({words}) ;;" for place, words in _cases(top))
    return f"""\
#compdef spinney
# zsh completion of spinney, made by `spinney completion zsh`
_spinney() {{
  local at= word
  local -a found
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$at/$word" in
    {"|".join(_places(top))}) at="$at/$word" ;;
    esac
  done
  _spinney_found "$at ${{words[CURRENT-1]}}" || _spinney_found "$at"
  compadd -- $found || _files
}}
_spinney_found() {{
  case "$1" in
{cases}
    *) return 1 ;;
  esac
}}
if [ "$funcstack[1]" = _spinney ]; then _spinney "$@"; else compdef _spinney spinney; fi
"""


def _fish(top: Node) -> str:
    cases = "\n".join(
        f"        case {_quoted(place)}\n            string split ' ' -- {_quoted(words)}\n            return 0"
        for place, words in _cases(top)
    )
    return f"""\
# fish completion of spinney, made by `spinney completion fish`
function __spinney_words
    switch "$argv[1]"
{cases}
    end
    return 1
end
function __spinney_complete
    set -l at ''
    set -l given (commandline -opc)
    for word in $given[2..-1]
        switch "$at/$word"
            case {" ".join(_quoted(place) for place in _places(top))}
                set at "$at/$word"
        end
    end
    __spinney_words "$at $given[-1]"; or __spinney_words "$at"
end
complete -c spinney -a '(__spinney_complete)'
"""


def _quoted(text: str) -> str:
    """For shells; there are no quotes in names of commands and options."""
    return f"'{text}'"


SHELLS: Final[Mapping[str, Callable[[Node], str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
