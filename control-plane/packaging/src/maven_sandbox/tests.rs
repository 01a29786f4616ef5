//! Results of builds in the sandbox, and the script that makes them.

use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;

/// Runs the script as the sandbox does, with a program in place of Maven; returns its archive.
fn script(home: &Path, project: &Path, maven: &str) -> (bool, Vec<u8>) {
    let program = home.join("mvn");
    // A shell writes it: a process that another test starts inherits a file that is open for writing here, and a program that is
    // open so cannot be executed.
    let mut write = Command::new("/bin/sh");
    write.args(["-c", r#"printf %s "$2" > "$1" && chmod 755 "$1""#, "sh"]).arg(&program);
    assert!(write.arg(format!("#!/bin/sh\n{maven}")).status().unwrap().success());
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "build", "-q", "package"]).env("HOME", home).env("PROJECT", project);
    let shared = project.parent().unwrap().join("shared");
    command.env("POMS", project.parent().unwrap().join("pom.xml")).env("SHARED", shared);
    command.env("KEPT", "").env("SETTINGS", "").env("NETWORK", "/n.xml").env("MAVEN", &program);
    let output = command.output().unwrap();
    (output.status.success(), output.stdout)
}

#[test]
fn the_target_and_what_was_downloaded_come_out_of_a_build() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let [home, project, kept] = ["home", "work/greet", "kept"].map(|name| root.join(name));
    for folder in [&home, &project.join("target"), &kept, &root.join("work/shared/a")] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(root.join("work/pom.xml"), "<project/>").unwrap();
    fs::write(project.join("pom.xml"), "<project/>").unwrap();
    fs::write(project.join("target/stale.jar"), "old").unwrap();
    fs::write(root.join("work/shared/a/a.jar"), "known").unwrap();
    fs::write(root.join("work/shared/a/_remote.repositories"), "r").unwrap();
    let maven = "for word; do case $word in -Dmaven.repo.local=*) repository=${word#*=};; esac; done
        [ \"$1 $2\" = '-gs /n.xml' ] && [ -f pom.xml ] && [ -f ../pom.xml ] && [ ! -e target ] || exit 1
        [ -h $repository/a/a.jar ] && [ ! -h $repository/a/_remote.repositories ] || exit 1
        mkdir -p target/dependency $repository/b && echo new > target/greet.jar
        echo b > $repository/b/b.jar; ln -s /etc/passwd target/link; echo said";
    let (succeeded, archive) = script(&home, &project, maven);
    assert!(succeeded, "{}", String::from_utf8_lossy(&archive));
    let mut results = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut results, &archive).unwrap();
    take_results(results, &project, &kept).unwrap();
    assert_eq!(fs::read_to_string(project.join("target/greet.jar")).unwrap(), "new\n");
    assert!(!project.join("target/stale.jar").exists() && !project.join("target/link").exists());
    assert_eq!(fs::read_to_string(kept.join("b/b.jar")).unwrap(), "b\n");
    assert!(!kept.join("a/a.jar").exists(), "it is in the other repository");
    let left: Vec<_> = fs::read_dir(&project).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(!script(&home, &project, "exit 1").0);
}

#[test]
fn a_name_that_leads_elsewhere_has_no_place() {
    let [fresh, kept] = [Path::new("/fresh"), Path::new("/kept")];
    let place =
        |path: &'static str| destination(Path::new(path), fresh, kept).map(|(to, rest)| to.join(rest));
    for (path, expected) in [
        ("target/a/b.jar", Some("/fresh/target/a/b.jar")),
        ("repository/a.jar", Some("/kept/a.jar")),
        ("targets/a", None),
        ("other", None),
        ("target/../../a", None),
        ("repository/../a", None),
        ("/target/a", None),
        ("./target/a", None),
    ] {
        assert_eq!(place(path), expected.map(PathBuf::from), "{path}");
    }
}

#[test]
fn a_target_that_is_a_link_is_replaced_and_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let project = root.path().join("project");
    let elsewhere = root.path().join("elsewhere");
    for folder in [&project, &elsewhere] {
        fs::create_dir(folder).unwrap();
    }
    fs::write(elsewhere.join("mine"), "").unwrap();
    symlink(&elsewhere, project.join("target")).unwrap();
    let mut builder = tar::Builder::new(tempfile::tempfile().unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    builder.append_data(&mut header, "target/a.jar", &b"a"[..]).unwrap();
    take_results(builder.into_inner().unwrap(), &project, root.path()).unwrap();
    assert!(elsewhere.join("mine").exists());
    assert_eq!(fs::read_to_string(project.join("target/a.jar")).unwrap(), "a");
}

#[test]
fn the_settings_name_the_proxy_for_both_protocols() {
    let settings = network_settings();
    for protocol in ["http", "https"] {
        assert!(settings.contains(&format!("<protocol>{protocol}</protocol>")), "{settings}");
    }
}
