//! Tests of the operator's named secrets: a primitive on a secret's list gets it in a process of its own, a stdio server in the
//! environment, and no other primitive does; nor does it appear in the API or the logs (I-7, I-12, ADR 16).

use std::path::Path;
use std::process::Command;

use asp_proto::plugin::server_message::Payload;
use asp_proto::supervisor::{AllocateWorkerRequest, PluginRef};
use serde_json::{Value, json};

use super::attempts::{Language, start};
use super::harness::{Said, Stack, install, launch, output, reference, wanted};

/// A server that reports its environment, its process and its library.
const SERVER: &str = r#"
import json, os, sys
try:
    import words
except ImportError:
    words = None
for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if method == "initialize":
        result = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "s", "version": "1"}}
    elif method == "tools/call":
        told = {"env": dict(os.environ), "pid": os.environ["ASP_WORKER_ID"], "words": words and words.ONE}
        result = {"content": [], "structuredContent": told}
    elif method == "ping":
        result = {}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#;
const SECRET: &str = "hunter2-of-the-crm";

fn asked_by(server: &str, primitive: &str) -> AllocateWorkerRequest {
    let plugin = PluginRef { called_as: format!("{server}/{primitive}"), ..reference("crm") };
    AllocateWorkerRequest { plugin: Some(plugin), ..wanted("crm", "acme") }
}

async fn told(stack: &Stack, server: &str, primitive: &str) -> Value {
    let mut tunnel = stack.tunnel_for(asked_by(server, primitive)).await;
    tunnel.tool(&format!("{server}-{primitive}"), primitive, "{}").await;
    let said = tunnel.rest().await;
    said.iter().find_map(Said::output).unwrap_or_else(|| panic!("{said:?}"))
}

async fn stack() -> Stack {
    let dir = tempfile::tempdir().unwrap();
    let manifest = json!({
        "mode": "mcp-stdio", "language": null, "command": ["python", "src/server.py"],
        "env": {"API_KEY": {"secret": "crm-key"}, "OTHER": {"secret": "absent"}, "MODE": {"value": "test"},
                "DATA": {"paths": ["data", "."]}, "PYTHONPATH": {"paths": ["vendored"]}},
    });
    install(&dir.path().join("plugins"), "crm", "1.0.0", &manifest);
    let package = dir.path().join("plugins/crm/1.0.0/package");
    std::fs::create_dir_all(package.join("src/lib")).unwrap();
    std::fs::write(package.join("src/server.py"), SERVER).unwrap();
    std::fs::write(package.join("src/lib/words.py"), "ONE = 'one'").unwrap();
    let secrets = dir.path().join("secrets.json");
    let named = json!({
        "crm-key": {"value": SECRET, "for": ["crm/find", "crm/list_*"]},
        "unused": {"value": "nobody wants this one", "for": ["*"]},
    });
    std::fs::write(&secrets, named.to_string()).unwrap();
    launch(dir, super::harness::runtime(), &["--secrets", secrets.to_str().unwrap()]).await
}

#[tokio::test]
async fn a_stdio_server_has_its_key_for_those_on_the_list_alone_and_in_a_process_of_theirs() {
    let stack = stack().await;
    let mine = told(&stack, "crm", "find").await;
    assert_eq!(mine["env"]["API_KEY"], SECRET);
    let listed = told(&stack, "crm", "list_all").await;
    assert_eq!((&listed["env"]["API_KEY"], &listed["pid"]), (&json!(SECRET), &mine["pid"]), "the same users");
    for (server, primitive) in [("other", "find"), ("crm", "finder"), ("crm", ""), ("", "")] {
        let other = told(&stack, server, primitive).await;
        assert_eq!(other["env"].get("API_KEY"), None, "{server}/{primitive}");
        assert_ne!(other["pid"], mine["pid"], "{server}/{primitive}");
        assert!(!other.to_string().contains(SECRET));
    }
    assert_eq!(told(&stack, "crm", "find").await["pid"], mine["pid"], "it was not replaced meanwhile");
    for told in [stack.health().await.to_string(), stack.logged("").join("\n")] {
        assert!(!told.contains(SECRET), "{told}");
    }
}

#[tokio::test]
async fn a_stdio_server_has_its_constants_and_the_libraries_beside_it() {
    let stack = stack().await;
    let told = told(&stack, "crm", "find").await;
    let package = stack.plugins().join("crm/1.0.0/package").canonicalize().unwrap();
    let below = |paths: &[&str]| {
        let paths = paths.iter().map(|path| package.join(path).display().to_string());
        json!(paths.collect::<Vec<_>>().join(":"))
    };
    assert_eq!(told["env"]["MODE"], "test");
    assert_eq!(told["env"]["DATA"], below(&["data", "."]));
    assert_eq!(told["env"]["PYTHONPATH"], below(&["vendored", "src/lib"]));
    assert_eq!(told["words"], "one");
    assert_eq!(told["env"].get("OTHER"), None, "a secret that the operator does not have");
    assert!(!told.to_string().contains("nobody wants"), "and none that its package does not ask for");
}

#[tokio::test]
async fn a_plugin_in_python_asks_for_its_secrets() {
    plugin_has_its_secrets(Language::Python).await;
}

#[tokio::test]
async fn a_plugin_in_node_asks_for_its_secrets() {
    plugin_has_its_secrets(Language::Node).await;
}

#[tokio::test]
async fn a_plugin_in_java_asks_for_its_secrets() {
    plugin_has_its_secrets(Language::Java).await;
}

async fn plugin_has_its_secrets(language: Language) {
    let directory = tempfile::tempdir().unwrap();
    let secrets = directory.path().join("secrets.json");
    let named = json!({
        "crm-key": {"value": SECRET, "for": ["crm/find"]},
        "unnamed": {"value": "no spec names this one", "for": ["*"]},
    });
    std::fs::write(&secrets, named.to_string()).unwrap();
    let plugins =
        |plugins: &Path| language.install(plugins, "crm", &json!({"secrets": ["crm-key", "absent"]}));
    let adapt = |mut runtime: Command| {
        runtime.env("ASP_SECRETS", &secrets);
        runtime
    };
    let stack = start(plugins, adapt).await;
    let ask = async |primitive: &str, arguments: &Value| {
        let mut tunnel = stack.tunnel_for(asked_by("crm", primitive)).await;
        tunnel.invoke("r", arguments).await;
        tunnel.rest().await
    };
    let mine = ask("find", &json!({"secret": "crm-key"})).await;
    assert_eq!(output(&mine), Some(json!({"text": SECRET, "environment": false})), "{mine:?}");
    let is_redacted =
        |said: &Said| matches!(said, Said::Message(Payload::Log(line)) if line.message == "log ***");
    assert!(mine.iter().any(is_redacted), "{mine:?}");
    let failed = ask("find", &json!({"secret": "crm-key", "fail": true})).await;
    let is_redacted = |said: &Said| matches!(said, Said::Message(Payload::Failed(failed)) if failed.message == "failed with ***");
    assert!(failed.iter().any(is_redacted), "{failed:?}");
    for (primitive, name) in [("finder", "crm-key"), ("find", "absent"), ("find", "unnamed")] {
        let refused = ask(primitive, &json!({ "secret": name })).await;
        let code = refused.iter().find_map(Said::failed);
        assert_eq!(code, Some("SECRET_UNAVAILABLE"), "{primitive} {name}: {refused:?}");
    }
    stack.log_line("stdout ***").await;
    for (name, why) in [("absent", "no secret of this name"), ("crm-key", "does not name the primitive")] {
        let reported = stack.log_line(why).await;
        assert!(reported.contains(name) && reported.contains("runs without a secret"), "{reported}");
    }
    for told in [stack.health().await.to_string(), stack.logged("").join("\n")] {
        assert!(!told.contains(SECRET), "{told}");
    }
}
