//! Builds of Maven projects without their author's consent.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use asp_e2e::tool;

use crate::dev::Author;
use crate::trial::{Shared, trials};

trials! { maven_builds:
    maven_builds_in_a_sandbox_where_nobody_has_said_yes,
}

/// Without consent Maven runs in a sandbox: it reads the project, writes `target`, and reaches nothing else.
async fn maven_builds_in_a_sandbox_where_nobody_has_said_yes(_: &Shared) -> Result<()> {
    let author = Author::new()?;
    author.server_in("java", "greet").await?;
    let code = author.root.join("greet/plugins/greet");
    fs::write(code.join("pom.xml"), "<project/>")?;
    let outside = author.work.path().join("outside");
    fs::write(&outside, "hunter2")?;
    let maven = tempfile::tempdir()?;
    // The user of the sandbox reads it.
    fs::set_permissions(maven.path(), fs::Permissions::from_mode(0o755))?;
    fs::create_dir(maven.path().join("bin"))?;
    let script = format!(
        "#!/bin/sh\ncat {} && exit 3\ntouch {}/evil && exit 4\nmkdir target && cp pom.xml target/built\n",
        outside.display(),
        code.display()
    );
    tool::write_program(&maven.path().join("bin/mvn"), &script)?;
    let mut asp = author.asp()?;
    asp.args(["plugin", "build"]).arg(&author.root).current_dir(author.work.path());
    asp.env_remove("ASP_TRUST_BUILDS").env_remove("XDG_CONFIG_HOME").env("HOME", author.work.path());
    asp.env("PATH", format!("{}:{}", maven.path().join("bin").display(), std::env::var("PATH")?));
    // It makes no jar, so the command fails in any case.
    let said = String::from_utf8_lossy(&asp.output().await?.stderr).into_owned();
    let built = fs::read_to_string(code.join("target/built")).with_context(|| said.clone())?;
    ensure!(built == "<project/>" && !code.join("evil").exists(), "{said}");
    ensure!(!said.contains("hunter2") && !said.contains("ASP_TRUST_BUILDS"), "{said}");
    Ok(())
}
