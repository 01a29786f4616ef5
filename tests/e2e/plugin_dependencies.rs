//! An author's commands without a stack: dependencies that are pinned, installed and packed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use asp_e2e::tool;
use tokio::process::Command;

use crate::trial::{Shared, trials};

trials! { plugin_dependencies:
    a_dependency_of_python_is_pinned_by_its_hash_and_packed,
    dependencies_of_node_are_installed_once_for_each_lock,
}

/// Installs one package of the lock, without a registry, if it must run no scripts and leave out development.
const NPM: &str = "#!/bin/sh
case \"$*\" in ci*--omit=dev*--ignore-scripts*) ;; *) echo \"npm $*\"; exit 1;; esac
[ ! -e .npmrc ] && ! grep -q typescript package.json package-lock.json || exit 1
mkdir -p node_modules/wordlib
echo \"export const hello = 'Hello';\" > node_modules/wordlib/index.mjs
echo '{\"name\": \"wordlib\", \"exports\": \"./index.mjs\"}' > node_modules/wordlib/package.json
";
const PACKAGE: &str =
    r#"{"type": "module", "dependencies": {"wordlib": "^1.0.0"}, "devDependencies": {"typescript": "5"}}"#;
const LOCK: &str = r#"{"lockfileVersion": 3, "packages": {
    "": {"dependencies": {"wordlib": "^1.0.0"}, "devDependencies": {"typescript": "5"}},
    "node_modules/typescript": {"dev": true, "version": "5.0.0"},
    "node_modules/wordlib":
        {"version": "1.0.0", "resolved": "https://registry.example.org/wordlib.tgz", "integrity": "sha512-eA=="}
}}"#;

/// A machine on which pip finds packages in one folder alone, and npm is a program that the test writes.
struct Machine {
    work: tempfile::TempDir,
}

impl Machine {
    fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// Runs a command; returns whether it succeeded, and its output.
    async fn asp(&self, folder: &Path, arguments: &[&str]) -> Result<(bool, String)> {
        let mut command = Command::new(tool::asp()?);
        command.args(arguments).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
        command.env("ASP_RUNTIME_BIN", tool::runtime()?).env("ASP_PLUGIN_PYTHON", tool::plugin_python()?);
        command.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", self.path("wheels"));
        command.env("XDG_CACHE_HOME", self.path("cache"));
        let (node, node_shim) = tool::plugin_node()?;
        command.env("ASP_PLUGIN_NODE", node).env("ASP_PLUGIN_NODE_SHIM", node_shim);
        command.env("PATH", format!("{}:{}", self.path("bin").display(), std::env::var("PATH")?));
        let output = command.output().await?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Ok((output.status.success(), said))
    }

    async fn must(&self, folder: &Path, arguments: &[&str]) -> Result<String> {
        let (ended_well, said) = self.asp(folder, arguments).await?;
        ensure!(ended_well, "{arguments:?}: {said}");
        Ok(said)
    }

    async fn fails(&self, folder: &Path, arguments: &[&str]) -> Result<String> {
        let (ended_well, said) = self.asp(folder, arguments).await?;
        ensure!(!ended_well, "{arguments:?} went well: {said}");
        Ok(said)
    }

    /// Makes the wheel of a library with this word; returns its digest.
    async fn publish(&self, library: &Path, word: &str) -> Result<String> {
        fs::write(library.join("words/plugins/words/wordlib.py"), format!("HELLO = '{word}'\n"))?;
        let wheels = self.path("wheels");
        let out = wheels.to_str().context("a path in UTF-8")?;
        self.must(library, &["plugin", "build", "--out", out]).await?;
        let digest = fs::read_to_string(wheels.join("words-0.1.0-py3-none-any.whl.sha256"))?;
        Ok(digest.split(' ').next().unwrap_or_default().to_owned())
    }
}

async fn a_dependency_of_python_is_pinned_by_its_hash_and_packed(_: &Shared) -> Result<()> {
    let machine = Machine { work: tempfile::tempdir()? };
    let library = machine.path("library");
    let work = machine.path("work");
    for (folder, id) in [(&library, "words"), (&work, "greet")] {
        fs::create_dir(folder)?;
        machine.must(folder, &["plugin", "new", id, "--language", "python"]).await?;
    }
    let digest = machine.publish(&library, "Hello").await?;

    let code = work.join("greet/plugins/greet");
    let main = fs::read_to_string(code.join("main.py"))?.replace("Hello, ", "{wordlib.HELLO}, ");
    fs::write(code.join("main.py"), format!("import wordlib\n{main}"))?;
    fs::write(code.join("requirements.txt"), "words>=0.1  # the library\n")?;
    let said = machine.fails(&work, &["plugin", "build", "--check"]).await?;
    let lock = code.join("requirements.lock");
    ensure!(said.contains("the lock of the dependencies") && !lock.exists(), "{said}");

    let said = machine.must(&work, &["plugin", "test"]).await?;
    ensure!(said.contains("1 passed, 0 failed") && said.contains("resolving the dependencies"), "{said}");
    let pinned = fs::read_to_string(&lock)?;
    ensure!(pinned.ends_with(&format!("words==0.1.0 \\\n    --hash=sha256:{digest}\n")), "{pinned}");
    let said = machine.must(&work, &["plugin", "build"]).await?;
    ensure!(!said.contains("installing the dependencies"), "it is in the cache: {said}");
    let package = fs::read(work.join("dist/greet-0.1.0-py3-none-any.whl"))?;
    let name = b"site-packages/wordlib.py";
    ensure!(package.windows(name.len()).any(|part| part == name), "not in the package");
    machine.must(&work, &["plugin", "build", "--check"]).await?;

    // Another file under the same version is not what the lock pins.
    let other = machine.publish(&library, "Good day").await?;
    ensure!(other != digest, "the same wheel");
    fs::remove_dir_all(machine.path("cache"))?;
    let said = machine.fails(&work, &["plugin", "test"]).await?;
    ensure!(said.contains("DO NOT MATCH THE HASHES"), "{said}");
    fs::write(code.join("requirements.txt"), "words @ https://example.org/words.tar.gz\n")?;
    let said = machine.fails(&work, &["plugin", "test"]).await?;
    ensure!(said.contains("requirements.txt: `words @ https://example.org/words.tar.gz` is not"), "{said}");
    Ok(())
}

async fn dependencies_of_node_are_installed_once_for_each_lock(_: &Shared) -> Result<()> {
    let machine = Machine { work: tempfile::tempdir()? };
    let work = machine.path("work");
    for folder in [&work, &machine.path("bin")] {
        fs::create_dir(folder)?;
    }
    tool::write_program(&machine.path("bin/npm"), NPM)?;
    machine.must(&work, &["plugin", "new", "greet", "--language", "node"]).await?;
    let code = work.join("greet/plugins/greet");
    let main = fs::read_to_string(code.join("main.mjs"))?.replace("Hello, ", "${hello}, ");
    fs::write(code.join("main.mjs"), format!("import {{ hello }} from 'wordlib';\n{main}"))?;
    fs::write(code.join("package.json"), PACKAGE)?;
    fs::write(code.join("package-lock.json"), LOCK)?;
    fs::write(code.join(".npmrc"), "git=./evil\n")?;
    // What the author has installed for an editor is not what is packed.
    fs::create_dir_all(code.join("node_modules/wordlib"))?;
    fs::write(code.join("node_modules/wordlib/index.mjs"), "throw new Error('the author\'s own');\n")?;

    let said = machine.must(&work, &["plugin", "test"]).await?;
    ensure!(said.contains("1 passed, 0 failed") && said.contains("installing the dependencies"), "{said}");
    let edited = fs::read_to_string(code.join("main.mjs"))? + "// An edit.\n";
    fs::write(code.join("main.mjs"), edited)?;
    let said = machine.must(&work, &["plugin", "test"]).await?;
    ensure!(said.contains("1 passed") && !said.contains("installing the dependencies"), "{said}");

    fs::write(code.join("package.json"), PACKAGE.replace("^1.0.0", "^2.0.0"))?;
    let said = machine.fails(&work, &["plugin", "test"]).await?;
    ensure!(said.contains("does not fit package.json: run `npm install`"), "{said}");
    fs::write(code.join("package.json"), PACKAGE)?;
    fs::write(
        code.join("package-lock.json"),
        LOCK.replace("https://registry.example.org", "git+ssh://example.org"),
    )?;
    let said = machine.fails(&work, &["plugin", "test"]).await?;
    ensure!(said.contains("node_modules/wordlib is not a package of a registry"), "{said}");
    Ok(())
}
