//! One hostile plugin in each language (`attempts/`), installed as often as a test needs it, and the same code outside
//! any sandbox.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::harness::{Stack, install, launch, output, runtime};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Python,
    Node,
    Java,
}

/// Limit on processes in the manifests below; the attempts exceed it a little.
pub(super) const PIDS: u64 = 64;
pub(super) const FILES: u64 = 256;
pub(super) const DISK_MIB: u64 = 8;
pub(super) const MEMORY: u64 = 256 << 20;

const PYTHON: &str = include_str!("attempts/attempts.py");
const NODE: &str = include_str!("attempts/attempts.mjs");
const NODE_PLUGIN: &str = include_str!("attempts/plugin.mjs");
const JAVA: &str = include_str!("attempts/Attempts.java");

// === impl Language ===

impl Language {
    pub(super) fn name(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::Node => "node",
            Language::Java => "java",
        }
    }

    /// Installs the hostile plugin as `id`; `differs` is merged into its manifest.
    pub(super) fn install(self, plugins: &Path, id: &str, differs: &Value) {
        let entrypoint = match self {
            Language::Python => "attempts.py",
            Language::Node => "plugin.mjs",
            Language::Java => "Attempts",
        };
        let mut manifest = json!({
            "language": self.name(), "entrypoint": entrypoint,
            "limits": {"memoryBytes": MEMORY, "pids": PIDS, "files": FILES, "diskBytes": DISK_MIB << 20},
            "pool": {"max": 1},
        });
        super::harness::merge(&mut manifest, differs);
        install(plugins, id, "1.0.0", &manifest);
        self.write(&plugins.join(id).join("1.0.0/package"));
    }

    /// Writes the plugin's code.
    fn write(self, package: &Path) {
        let write = |name: &str, code: &[u8]| std::fs::write(package.join(name), code).unwrap();
        match self {
            Language::Python => write("attempts.py", PYTHON.as_bytes()),
            Language::Node => {
                write("attempts.mjs", NODE.as_bytes());
                write("plugin.mjs", NODE_PLUGIN.as_bytes());
            }
            Language::Java => {
                for (name, class) in java_classes() {
                    write(name, class);
                }
            }
        }
    }

    /// Runs the positive control: the same attempts by the same code, in a plain process that works in `directory`.
    pub(super) fn outside(self, attempts: &Value, directory: &Path) -> Value {
        self.write(directory);
        let mut command = match self {
            Language::Python => {
                let mut python = Command::new(variable("ASP_PLUGIN_PYTHON"));
                python.args(["-B", "attempts.py"]);
                python
            }
            Language::Node => {
                let mut node = Command::new(variable("ASP_PLUGIN_NODE"));
                // By its full path: Node compares it with the module's own.
                node.arg(directory.canonicalize().unwrap().join("attempts.mjs"));
                node
            }
            Language::Java => {
                let mut java = Command::new(variable("ASP_PLUGIN_JAVA"));
                java.args(["-cp", &format!("{}:{}", java_library(), directory.display()), "Attempts"]);
                java
            }
        };
        let ended = command.arg(attempts.to_string()).current_dir(directory).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        serde_json::from_str(&said)
            .unwrap_or_else(|_| panic!("{said}{}", String::from_utf8_lossy(&ended.stderr)))
    }
}

/// Returns a variable that scripts/setup set; a missing language is a failure.
fn variable(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} is not set: source .tools/env, which scripts/setup made"))
}

fn java_library() -> String {
    format!("{}/asp-plugin.jar", variable("ASP_PLUGIN_JAVA_SHIM"))
}

/// Returns the Java classes, compiled once for all tests.
fn java_classes() -> &'static [(String, Vec<u8>)] {
    static CLASSES: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("Attempts.java");
        std::fs::write(&source, JAVA).unwrap();
        let classes = dir.path().join("classes");
        let built = Command::new("javac")
            .args(["-nowarn", "-cp", &java_library(), "-d"])
            .args([&classes, &source])
            .output();
        let built = built.expect("javac is on the PATH");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let files = std::fs::read_dir(&classes).unwrap().flatten();
        let class = |file: std::fs::DirEntry| {
            (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())
        };
        files.map(class).collect()
    })
}

/// Starts a runtime with the installed shims; `plugins` installs its plugins, and `adapt` may change its command.
pub(super) async fn start(plugins: impl FnOnce(&Path), adapt: impl FnOnce(Command) -> Command) -> Stack {
    for name in ["PYTHON", "NODE", "NODE_SHIM", "JAVA", "JAVA_SHIM"] {
        variable(&format!("ASP_PLUGIN_{name}"));
    }
    let dir = tempfile::tempdir().unwrap();
    plugins(&dir.path().join("plugins"));
    launch(dir, adapt(runtime()), &[]).await
}

/// Returns the output of one call that must have one.
pub(super) async fn ask(stack: &Stack, id: &str, arguments: &Value) -> Value {
    let said = stack.call(id, "ask", arguments).await;
    output(&said).unwrap_or_else(|| panic!("{id} {arguments}: {said:?}"))
}
