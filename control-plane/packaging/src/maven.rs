//! Inputs that Maven takes from outside a plugin's folder and that may change unnoticed: the parent POMs on disk, and the
//! files of SNAPSHOT versions in Maven's repository.
//!
//! Keeps true: the results are hints about which files to watch; only Maven knows what a build really uses.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::folder::is_maven;

const POM: &str = "pom.xml";
/// Default location of a parent POM (POM reference, `relativePath`).
const PARENT: &str = "../pom.xml";
/// Maximum number of parents followed, and maximum size in bytes of one file.
const MAX_PARENTS: usize = 16;
const MAX_FILE: u64 = 1 << 20;
/// Maven's own list of the artifacts it resolved, below the plugin's folder.
const RESOLVED: &str = "target/asp-dependencies.txt";
/// Part of the name of a repository folder of an unreleased version.
const SNAPSHOT: &str = "-SNAPSHOT";
/// Text that follows the path in a line of the list.
const MODULE: &str = " -- ";

/// Returns Maven's goals: the jar, its dependencies, and the list.
pub fn goals() -> Vec<String> {
    let goals = ["-q", "-B", "package", "dependency:copy-dependencies", "dependency:list"];
    let mut goals: Vec<String> = goals.map(str::to_owned).into();
    goals.push("-DincludeScope=runtime".to_owned());
    goals.push("-DoutputAbsoluteArtifactFilename=true".to_owned());
    goals.push(format!("-DoutputFile={RESOLVED}"));
    goals
}

/// Returns the POM files on disk that the one in `folder` inherits from, or none without a project.
pub fn parents(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut next = if is_maven(folder) { parent(&folder.join(POM)) } else { None };
    while let Some(pom) = next.filter(|pom| found.len() < MAX_PARENTS && !found.contains(pom)) {
        next = parent(&pom);
        found.push(pom);
    }
    found
}

fn parent(pom: &Path) -> Option<PathBuf> {
    let text = read(pom)?;
    let parent = between(&text, "<parent>", "</parent>")?;
    let named = between(parent, "<relativePath>", "</relativePath>").map(str::trim);
    // An empty element means that the parent is in a repository.
    let place = if parent.contains("<relativePath/>") { "" } else { named.unwrap_or(PARENT) };
    let path = pom.parent()?.join(Some(place).filter(|place| !place.is_empty())?).canonicalize().ok()?;
    let path = if path.is_dir() { path.join(POM) } else { path };
    path.is_file().then_some(path)
}

/// Returns the files of SNAPSHOT versions that the last build took from Maven's repository.
pub fn snapshots(folder: &Path) -> Vec<PathBuf> {
    let text = read(&folder.join(RESOLVED)).unwrap_or_default();
    text.lines().filter_map(snapshot).collect()
}

/// Parses a line `group:artifact:type:version:scope:/path`; returns the path of a SNAPSHOT version.
fn snapshot(line: &str) -> Option<PathBuf> {
    let (_, path) = line.split_once(":/")?;
    let path = path.split(MODULE).next().unwrap_or(path);
    path.contains(SNAPSHOT).then(|| Path::new("/").join(path.trim()))
}

fn between<'t>(text: &'t str, begin: &str, end: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(begin)?;
    rest.split_once(end).map(|(inner, _)| inner)
}

fn read(path: &Path) -> Option<String> {
    if !path.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn parents_are_found_where_a_pom_says_they_are() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let folder = root.join("plugins/greet");
        let pom = folder.join("pom.xml");
        assert!(parents(&folder).is_empty());
        write(&pom, "<project><parent><artifactId>p</artifactId></parent></project>");
        assert!(parents(&folder).is_empty(), "it is in a repository");
        let beside = root.join("plugins/pom.xml");
        let above = root.join("build/parent/pom.xml");
        write(
            &beside,
            "<project><parent>\n<relativePath> ../build/parent </relativePath></parent></project>",
        );
        write(&above, "<project><parent><relativePath/></parent></project>");
        write(&root.join("build/pom.xml"), "<project/>");
        assert_eq!(parents(&folder), [beside.clone(), above.clone()]);
        write(&above, "<project><parent><relativePath>../../plugins</relativePath></parent></project>");
        assert_eq!(parents(&folder), [beside, above], "a circle ends");
    }

    #[test]
    fn of_what_maven_resolved_the_files_that_are_no_releases_are_told() {
        let root = tempfile::tempdir().unwrap();
        assert!(snapshots(root.path()).is_empty());
        let list = "\nThe following files have been resolved:\n   \
            a:b:jar:1.0:compile:/m2/a/b/1.0/b-1.0.jar\n   \
            a:c:jar:1.0-SNAPSHOT:compile:/m 2/a/c/1.0-SNAPSHOT/c-1.0-SNAPSHOT.jar -- module c (auto)\n   \
            a:d:jar:1-20240101.120000-1:runtime:/m2/a/d/1-SNAPSHOT/d-1-20240101.120000-1.jar\n";
        write(&root.path().join(RESOLVED), list);
        let found =
            ["/m 2/a/c/1.0-SNAPSHOT/c-1.0-SNAPSHOT.jar", "/m2/a/d/1-SNAPSHOT/d-1-20240101.120000-1.jar"];
        assert_eq!(snapshots(root.path()), found.map(PathBuf::from));
    }
}
