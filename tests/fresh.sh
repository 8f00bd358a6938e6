#!/bin/sh
# Does a fresh clone of HEAD build and pass, with an empty environment?
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git clone -q . "$folder/clone"
if [ -n "$(git status --porcelain)" ]; then
  echo "note: this checks HEAD; what is not committed is not in it"
fi
# Only what finds programs and packages is kept.
kept=$(env | grep -E '^(PIP|UV)_[A-Z_]*=' | grep -v ' ' || true)
# shellcheck disable=SC2086
bare() {
  env -i PATH="$PATH" HOME="$HOME" ${CI:+CI="$CI"} $kept \
    make -C "$folder/clone" "$@"
}
bare book
bare test
echo "a fresh clone builds and passes"
