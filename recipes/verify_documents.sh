#!/usr/bin/env bash
# Makes documents with LibreOffice, pandoc and Sphinx, translates them without a model, and checks that these programs and
# gettext accept the result. A text that is its own translation must look the same, and a text in upper case must differ
# in nothing else.
#
#   bash recipes/verify_documents.sh
#
# Needs soffice, pandoc, pdftoppm and msgfmt. RUN=folder receives all files (default runs/verify-documents).
set -euo pipefail
. "$(dirname "$0")/common.sh"

[ $# = 0 ] || fail "verify_documents.sh takes no arguments, but was given: $*; leave them out"
run_dir=$(path_or "${RUN:-}" runs/verify-documents)
packages="libreoffice-writer-nogui, pandoc, poppler-utils and gettext on Debian and Ubuntu"

# convert FORMAT FOLDER FILE...: converts documents with LibreOffice.
convert() {
    local file
    soffice "-env:UserInstallation=file://$(realpath "$run_dir")/profile" --headless --convert-to "$1" --outdir "$2" \
        "${@:3}" > "$run_dir/soffice.log" 2>&1 || fail "soffice failed; see $run_dir/soffice.log"
    for file in "${@:3}"; do
        file=$2/$(basename "${file%.*}").${1%%:*}
        [ -e "$file" ] || fail "soffice did not write $file; see $run_dir/soffice.log"
    done
}

# verify_docx FILE...: compares the pages of documents with those of their translations, and the words in upper case.
verify_docx() {
    local file same upper all=() views=$run_dir/views
    for file in "$@"; do
        same=${file%.docx}.same.docx upper=${file%.docx}.upper.docx
        python recipes/verify/documents.py "$file" "$same" "$upper"
        all+=("$file" "$same" "$upper")
    done
    rm -rf "$views"
    say "Drawing ${#all[@]} documents"
    convert pdf "$views" "${all[@]}"
    convert "txt:Text (encoded):UTF8" "$views" "${all[@]}"
    for file in "$@"; do
        file=$views/$(basename "${file%.docx}")
        pdftoppm -r 60 "$file.pdf" "$file.page"
        pdftoppm -r 60 "$file.same.pdf" "$file.same.page"
        [ "$(ls "$file.page"-* | wc -l)" = "$(ls "$file.same.page"-* | wc -l)" ] ||
            fail "$file.same.pdf has another number of pages than $file.pdf"
        for page in "$file.page"-*; do
            cmp "$page" "${page/.page-/.same.page-}" || fail "$file.same.pdf looks otherwise than $file.pdf"
        done
        upper_case "$file.txt" > "$file.expected"
        upper_case "$file.upper.txt" | diff "$file.expected" - || fail "$file.upper.txt has other words than $file.txt"
        echo "$(basename "$file"): $(ls "$file.page"-* | wc -l) pages are equal, and $(wc -w < "$file.expected") words"
    done
}

# upper_case FILE: prints the words of a file in upper case, one a line.
upper_case() {
    python -c 'import sys; print(*open(sys.argv[1], encoding="utf-8-sig").read().upper().split(), sep="\n")' "$1"
}

# verify_po FILE: checks the two translations of a catalogue with gettext.
verify_po() {
    local same=${1%.pot}.same.po upper=${1%.pot}.upper.po
    python recipes/verify/documents.py "$1" "$same" "$upper"
    for file in "$same" "$upper"; do
        msgfmt --check --use-fuzzy --output-file=/dev/null "$file" || fail "gettext refuses $file; see its message above"
    done
    # Without the header, and without the marks for review, the first catalogue is what msgen writes.
    msgen --no-wrap "$1" | messages > "$same.expected"
    msgattrib --clear-fuzzy --no-wrap "$same" | messages | diff "$same.expected" - || fail "$same differs from $1"
    echo "$1: gettext accepts both translations"
}

# messages: prints the messages of a catalogue on standard input.
messages() {
    sed -n '/^$/,$ p' | grep -v '^#, fuzzy$'
}

for program in soffice pandoc pdftoppm msgfmt; do
    command -v $program > /dev/null || fail "$program was not found; install $packages"
done
set_up_environment
mkdir -p "$run_dir/docs"
say "Making documents"
documents=()
for page in README.md docs/*.md; do
    name=$(basename "$page" .md)
    pandoc "$page" --output "$run_dir/$name.docx"
    pandoc "$page" --to rst --output "$run_dir/docs/$name.rst"
    documents+=("$run_dir/$name.docx")
done
pandoc README.md --standalone --output "$run_dir/libreoffice.html"
convert odt "$run_dir" "$run_dir/libreoffice.html"
convert docx "$run_dir" recipes/verify/formatted.fodt "$run_dir/libreoffice.odt"
verify_docx "${documents[@]}" "$run_dir/formatted.docx" "$run_dir/libreoffice.docx"

own_environment "$run_dir/environment" sphinx==9.0.4
printf 'root_doc = "README"\n' > "$run_dir/docs/conf.py"
run "$run_dir/environment/bin/python" -m sphinx --quiet --builder gettext "$run_dir/docs" "$run_dir/catalogues" \
    2> "$run_dir/sphinx.log" || fail "Sphinx could not write catalogues; see $run_dir/sphinx.log"
for file in "$run_dir"/catalogues/*.pot; do
    verify_po "$file"
done
