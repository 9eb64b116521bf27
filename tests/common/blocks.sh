# The examples in documents. A script reads this file.

# blocks LANGUAGE FILE [N]: the fenced blocks of a language, or the Nth of them.
blocks() {
    awk -v fence="\`\`\`$1" -v only="${3-}" '
        $0 == "```" { inside = 0 }
        inside && (!only || count == only) { print }
        $0 == fence { inside = 1; count++ }' "$2"
}
