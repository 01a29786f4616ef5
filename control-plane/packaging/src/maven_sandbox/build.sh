# Builds a Maven project in a sandbox, where only HOME can be written, and prints an archive of the results: `target`, and
# the files of the local repository that this build downloaded.
#
# PROJECT: folder of the project. POMS: its parent POMs on disk, one a line. SHARED, KEPT: local repositories to read. MAVEN: program.
# NETWORK: settings with the proxy. SETTINGS: those of the account; empty if it has none. Arguments: goals and options.
set -eu

tree=$HOME/tree
repository=$HOME/repository
mkdir -p "$tree" "$repository"

# Paths relative to the project, such as a parent's, must lead to the same files.
copy() {
    mkdir -p "$tree$(dirname "$1")"
    cp -R "$1" "$tree$1"
}

copy "$PROJECT"
printf '%s\n' "$POMS" | while IFS= read -r pom; do
    if [ -n "$pom" ]; then copy "$pom"; fi
done

# Links, because a repository may be large; Maven writes to the files that record where something came from.
for known in "$SHARED" "$KEPT"; do
    if [ -d "$known" ]; then cp -Rsf "$known/." "$repository/"; fi
done
find "$repository" -type l \( -name '_remote.repositories' -o -name 'resolver-status.properties' -o -name 'maven-metadata*' \
    -o -name '*.lastUpdated' \) \
    -exec sh -c 'for file; do cp --remove-destination "$(readlink "$file")" "$file"; done' sh {} +

cd "$HOME"
find repository -type f | sort > known
cd "$tree$PROJECT"
rm -rf target
set -- -gs "$NETWORK" "-Dmaven.repo.local=$repository" "$@"
if [ -n "$SETTINGS" ]; then set -- -s "$SETTINGS" "$@"; fi
"$MAVEN" "$@" >&2

mkdir -p "$HOME/out/target"
if [ -d target ]; then rm -rf "$HOME/out/target" && mv target "$HOME/out/target"; fi
cd "$HOME"
find repository -type f | sort | comm -13 known - > downloaded
tar -cf - -C "$HOME/out" target -C "$HOME" -T downloaded
