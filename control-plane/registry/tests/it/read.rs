//! Reading a primitives folder: the files read, their order, and rejected files.

use std::fs;
use std::path::Path;

use asp_registry::{ReadError, read_dir};

fn write(root: &Path, path: &str, text: &[u8]) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().expect("a file has a folder")).expect("the folder can be made");
    fs::write(file, text).expect("the file can be written");
}

#[test]
fn sources_come_sorted_without_the_folders_beside_the_servers() {
    let root = tempfile::tempdir().expect("a temporary folder");
    for path in [
        "b/two.yaml",
        "a/one.json",
        "a/server.yml",
        "a/README.md",
        "a/.hidden.yaml",
        ".git/config.yaml",
        "invalid/bad.yaml",
        "schema/primitive.json",
        "a/plugin/package.json",
        "stray.yaml",
    ] {
        write(root.path(), path, b"a: 1\n");
    }
    let sources = read_dir(root.path()).expect("it is readable");
    let paths: Vec<_> = sources.iter().map(|source| source.path.as_str()).collect();
    // A misplaced file is read, so that the check can tell where it belongs.
    assert_eq!(paths, ["a/one.json", "a/server.yml", "b/two.yaml", "stray.yaml"]);
    assert_eq!(sources[0].text, "a: 1\n");
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    let root = tempfile::tempdir().expect("a temporary folder");
    assert!(matches!(read_dir(&root.path().join("none")), Err(ReadError::Io { .. })));
}

#[test]
fn text_that_is_not_utf_8_and_files_too_large_are_refused() {
    let root = tempfile::tempdir().expect("a temporary folder");
    write(root.path(), "a/bad.yaml", b"a: \xff\n");
    assert!(matches!(read_dir(root.path()), Err(ReadError::NotText { path }) if path == "a/bad.yaml"));
    write(root.path(), "a/bad.yaml", &vec![b'#'; 1024 * 1024 + 1]);
    assert!(matches!(read_dir(root.path()), Err(ReadError::TooLarge { path }) if path == "a/bad.yaml"));
}

#[cfg(unix)]
#[test]
fn links_out_of_the_folder_are_refused_and_links_inside_are_followed() {
    use std::os::unix::fs::symlink;

    let outside = tempfile::tempdir().expect("a temporary folder");
    write(outside.path(), "secret.yaml", b"a: 1\n");
    let root = tempfile::tempdir().expect("a temporary folder");
    write(root.path(), "a/one.yaml", b"a: 1\n");
    symlink(root.path().join("a/one.yaml"), root.path().join("a/same.yaml")).expect("a link");
    assert_eq!(read_dir(root.path()).expect("links inside are fine").len(), 2);
    symlink(outside.path().join("secret.yaml"), root.path().join("a/out.yaml")).expect("a link");
    assert!(matches!(read_dir(root.path()), Err(ReadError::Outside { path }) if path == "a/out.yaml"));
    fs::remove_file(root.path().join("a/out.yaml")).expect("the link can be removed");
    symlink(outside.path(), root.path().join("out")).expect("a link");
    assert!(matches!(read_dir(root.path()), Err(ReadError::Outside { path }) if path == "out"));
}

#[cfg(unix)]
#[test]
fn a_socket_named_like_a_spec_is_refused() {
    let root = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir_all(root.path().join("a")).expect("the folder can be made");
    let _socket = std::os::unix::net::UnixListener::bind(root.path().join("a/pipe.yaml")).expect("a socket");
    assert!(matches!(read_dir(root.path()), Err(ReadError::NotAFile { path }) if path == "a/pipe.yaml"));
}

/// A line end would forge lines wherever the name is shown; the other characters control a terminal.
#[cfg(unix)]
#[test]
fn a_name_with_a_control_character_is_refused_and_shown_without_it() {
    for name in [
        "x\n::error file=a.yaml::forged\n.yaml",
        "x\r.yaml",
        "x\u{1b}[2J.yaml",
        "x\u{85}.yaml",
        // Files that are never read are reported for their names all the same.
        "note\n.txt",
        ".hidden\n",
    ] {
        for path in [format!("a/{name}"), format!("{name}/one.yaml")] {
            let root = tempfile::tempdir().expect("a temporary folder");
            write(root.path(), &path, b"a: 1\n");
            let error = read_dir(root.path()).expect_err("the name is refused");
            assert!(matches!(error, ReadError::Name { .. }), "{error:?}");
            assert!(!error.to_string().chars().any(char::is_control), "{error}");
        }
    }
}
