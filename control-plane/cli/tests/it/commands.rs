//! Commands that need no control plane: exit codes and output.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use serde_json::Value;

use crate::support::{asp, primitives, run, text, until};

#[test]
fn bad_configuration_exits_64_and_lists_every_fault() {
    let state = tempfile::tempdir().unwrap();
    let output = run(asp(state.path()).args(["serve", "--roles", "boss"]).env("ASP_PORT", "x"));
    assert_eq!(output.status.code(), Some(64));
    let faults = text(&output.stderr);
    for name in ["--roles", "ASP_PORT", "ASP_PUBLIC_URL"] {
        assert!(faults.contains(name), "{name} is missing from {faults}");
    }
    let usage = run(asp(state.path()).arg("--nonsense"));
    assert_eq!(usage.status.code(), Some(64));
}

#[test]
fn help_lists_what_there_is_and_every_command_has_its_own() {
    let state = tempfile::tempdir().unwrap();
    let output = run(asp(state.path()).arg("--help"));
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for command in [
        "serve", "config", "token", "issuer", "lint", "compile", "apply", "diff", "deploy", "import",
        "status", "explain", "policy", "limits", "revoke", "history", "undo", "audit", "servers", "tools",
        "db",
    ] {
        assert!(help.contains(&format!("  {command}")), "{command} is missing from {help}");
        assert!(run(asp(state.path()).args([command, "--help"])).status.success(), "{command}");
    }
}

#[test]
fn config_prints_every_setting_and_what_serve_would_refuse() {
    let state = tempfile::tempdir().unwrap();
    let url = "postgres://asp:hunter2@db/asp";
    let mut command = asp(state.path());
    let good = run(command.args(["config", "--dev", "--format", "json"]).env("ASP_DATABASE_URL", url));
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    assert!(!text(&good.stdout).contains("hunter2"));
    let settings: Vec<Value> = serde_json::from_slice(&good.stdout).unwrap();
    let of = |name: &str| settings.iter().find(|setting| setting["name"] == name).unwrap().clone();
    let shown =
        |name: &str| (of(name)["value"].clone(), of(name)["source"].clone(), of(name)["default"].clone());
    assert_eq!(shown("ASP_PORT"), ("0".into(), "environment".into(), "8080".into()));
    assert_eq!(shown("ASP_DATABASE_URL").0, "***");
    assert_eq!(shown("ASP_BREAK_GLASS"), ("on".into(), "default".into(), "on".into()));

    let bad = run(asp(state.path()).arg("config").env("ASP_EDGE_WORKERS", "many"));
    assert_eq!(bad.status.code(), Some(64));
    assert!(
        text(&bad.stdout).contains("ASP_EDGE_WORKERS = ***  (environment; default 2)"),
        "{}",
        text(&bad.stdout)
    );
    for name in ["ASP_EDGE_WORKERS", "ASP_PUBLIC_URL", "ASP_SEAL_KEY"] {
        assert!(text(&bad.stderr).contains(name), "{}", text(&bad.stderr));
    }
}

#[test]
fn a_client_gets_its_entry_printed_or_written_and_no_token() {
    let state = tempfile::tempdir().unwrap();
    let connect = |arguments: &[&str]| {
        let mut command = asp(state.path());
        command.args(["connect", "demo", "--client"]).args(arguments).current_dir(state.path());
        run(command.env("ASP_EDGE_URL", "https://mcp.example.com").env("ASP_TOKEN", "hunter2"))
    };
    let printed = connect(&["claude-code", "--token"]);
    assert_eq!(printed.status.code(), Some(0), "{}", text(&printed.stderr));
    let shown = text(&printed.stdout);
    assert!(shown.contains("https://mcp.example.com/demo/mcp") && shown.contains("${ASP_TOKEN}"), "{shown}");
    assert!(shown.contains("claude mcp add --transport http demo ") && !shown.contains("hunter2"), "{shown}");
    let file = state.path().join(".cursor/mcp.json");
    assert_eq!(connect(&["cursor", "--write"]).status.code(), Some(0));
    let entries: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(entries["mcpServers"]["demo"]["url"], "https://mcp.example.com/demo/mcp");
    assert_eq!(connect(&["inspector", "--write"]).status.code(), Some(64));
    assert_eq!(connect(&["nobody"]).status.code(), Some(64));
}

#[test]
fn a_token_is_printed_alone() {
    let state = tempfile::tempdir().unwrap();
    let mint = || run(asp(state.path()).args(["token", "--org", "acme", "--user", "alice"]));
    let refused = mint();
    let said = text(&refused.stderr);
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(64), String::new()), "{said}");
    assert!(said.contains("ASP_STATE_DIR") && said.contains(&state.path().display().to_string()), "{said}");
    ::asp::dev_issuer::DevIssuer::load_or_create(state.path()).unwrap();
    let output = mint();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let token = text(&output.stdout);
    assert_eq!(token.trim_end().split('.').count(), 3);
    assert_eq!(token.lines().count(), 1);
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn the_samples_have_no_fault_and_a_broken_directory_is_refused_with_its_places() {
    let state = tempfile::tempdir().unwrap();
    let samples = run(asp(state.path()).args(["lint", "--json"]).arg(primitives()));
    assert!(samples.status.success(), "{}", text(&samples.stdout));
    let report: Value = serde_json::from_slice(&samples.stdout).unwrap();
    assert_eq!(report["valid"], true);

    let broken = state.path().join("primitives/demo");
    std::fs::create_dir_all(&broken).unwrap();
    std::fs::write(broken.join("server.yaml"), "apiVersion: asp/v1\nname: demo\nnonsense: 1\n").unwrap();
    let refused = run(asp(state.path()).arg("lint").arg(state.path().join("primitives")));
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stdout).contains("demo/server.yaml:3:"), "{}", text(&refused.stdout));
    let served =
        run(asp(state.path()).args(["serve", "--dev", "--primitives"]).arg(state.path().join("primitives")));
    assert_eq!(served.status.code(), Some(1), "a faulty directory is not served");
}

#[test]
fn what_is_compiled_is_what_clients_would_get() {
    let state = tempfile::tempdir().unwrap();
    let output = run(asp(state.path()).args(["compile", "--server", "demo", "--json"]).arg(primitives()));
    let compiled: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = compiled[0]["mcp"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"echo"), "{names:?}");
}

#[test]
fn one_file_is_linted_with_what_stands_beside_it_or_alone() {
    let state = tempfile::tempdir().unwrap();
    let lint = |path: &Path| {
        let output = run(asp(state.path()).args(["lint", "--json"]).arg(path));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        (output.status.code(), report)
    };
    let (code, report) = lint(&primitives().join("demo/echo.yaml"));
    assert_eq!((code, &report["valid"]), (Some(0), &Value::Bool(true)), "{report}");
    let (code, report) = lint(&primitives().join("invalid/bad_id.yaml"));
    assert_eq!((code, &report["errors"][0]["code"]), (Some(1), &Value::from("bad_id")), "{report}");
    let (code, report) = lint(&primitives().join("invalid/unresolved_ref/demo/server.yaml"));
    assert_eq!((code, &report["errors"][0]["code"]), (Some(1), &Value::from("unresolved_ref")), "{report}");
    let (code, _) = lint(&primitives().join("README.md"));
    assert_eq!(code, Some(1), "no primitive's file");
}

#[test]
fn in_the_folder_of_one_server_a_command_names_the_directory_above_it() {
    let state = tempfile::tempdir().unwrap();
    let root = state.path().canonicalize().unwrap().join("mine");
    let made = run(asp(state.path()).args(["plugin", "new", "greet", "--language", "python"]).arg(&root));
    assert!(made.status.success(), "{}", text(&made.stderr));
    for command in ["plugin test", "plugin build", "plugin run greet", "lint", "compile", "dev"] {
        let mut asp = asp(state.path());
        let output = run(asp.args(command.split(' ')).arg(".").current_dir(root.join("greet")));
        assert_eq!(output.status.code(), Some(1), "{command}");
        let said = text(&output.stderr);
        let names = format!("name the directory above it: {}\n", root.display());
        assert!(said.ends_with(&names) && !said.contains("bad_path"), "{command}: {said}");
    }
}

#[test]
fn without_a_server_a_command_says_one_line_with_the_way_out() {
    let state = tempfile::tempdir().unwrap();
    // Bound and released, so that nothing listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    let output =
        run(asp(state.path()).arg("status").env("ASP_ADMIN_URL", &url).env("ASP_ADMIN_TOKEN", "a.b.c"));
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains(&url) && said.contains("asp serve --dev"), "{said}");
}

#[test]
fn the_usage_of_token_says_when_an_org_is_needed() {
    let state = tempfile::tempdir().unwrap();
    let usage = text(&run(asp(state.path()).args(["token", "--user", "alice"])).stderr);
    assert!(usage.contains("asp token --org <ORG>") && usage.contains("asp token --admin"), "{usage}");
}

#[test]
fn development_mode_behind_a_public_name_is_warned_of() {
    let state = tempfile::tempdir().unwrap();
    let warned = |url: &str| {
        // A missing directory ends the start after the settings were read.
        let output = run(asp(state.path())
            .args(["serve", "--dev", "--primitives", "/nonexistent"])
            .env("ASP_PUBLIC_URL", url));
        (text(&output.stdout) + &text(&output.stderr)).contains("development mode behind a public name")
    };
    assert!(warned("https://mcp.example.com"));
    assert!(!warned("https://localhost:8443"));
}

#[test]
fn keys_of_the_vault_are_added_listed_and_removed() {
    let parent = tempfile::tempdir().unwrap();
    let state = parent.path().join("state");
    let vault = |words: &[&str]| run(asp(&state).arg("vault").args(words));
    let json = |words: &[&str]| -> Value {
        let output = vault(&[words, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let missing = vault(&["keys"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("asp vault rotate"), "{}", text(&missing.stderr));
    let first = json(&["rotate"]);
    let later = json(&["rotate", "--in", "600"]);
    assert_eq!((&first["current"], &later["current"]), (&true.into(), &false.into()));
    let keys = json(&["keys"]);
    assert_eq!(keys, Value::Array(vec![first.clone(), later.clone()]));
    let id = |key: &Value| key["key"].as_str().unwrap().to_owned();
    let refused = vault(&["forget", &id(&first)]);
    assert!(text(&refused.stderr).contains("rotate first"), "{}", text(&refused.stderr));
    json(&["forget", &id(&later)]);
    assert_eq!(json(&["keys"]), Value::Array(vec![first]));
    let file = std::fs::read_to_string(state.join("vault-key")).unwrap();
    let secret = file.lines().nth(1).unwrap().split(' ').nth(2).unwrap();
    assert!(!text(&vault(&["keys"]).stdout).contains(secret), "a listing has no key");

    let elsewhere = run(asp(&state).args(["vault", "rotate"]).env("ASP_VAULT_KMS", "plugin:/run/kms.sock"));
    assert_eq!(elsewhere.status.code(), Some(64));
    assert!(text(&elsewhere.stderr).contains("ASP_VAULT_KMS"), "{}", text(&elsewhere.stderr));
}

#[test]
fn an_import_prints_one_object_for_programs_and_its_text_for_people() {
    let state = tempfile::tempdir().unwrap();
    let document = serde_json::json!({"openapi": "3.1.0", "servers": [{"url": "https://shop.example"}], "paths": {
        "/orders": {
            "delete": {"operationId": "clear"},
            "options": {"operationId": "ask"},
        },
    }});
    let file = state.path().join("shop.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let out = state.path().join("primitives");
    let import = |name: &str| {
        let mut command = asp(state.path());
        command.args(["import", "--openapi", file.to_str().unwrap(), "--server", name]);
        let output = run(command.args(["--json", "--out"]).arg(&out));
        let object: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), object, text(&output.stderr))
    };
    let (code, object, said) = import("shop");
    assert_eq!((code, &object["written"]), (Some(0), &true.into()), "{said}");
    let server = &object["servers"][0];
    assert_eq!(server["ids"], serde_json::json!(["shop.clear"]), "{server}");
    assert_eq!(server["leftOut"][0]["item"], "options /orders", "{server}");
    assert_eq!(server["needsApproval"], serde_json::json!(["shop.clear"]), "{server}");
    assert!(said.contains("left out: options /orders") && said.contains("next: asp deploy"), "{said}");

    std::fs::write(&file, document.to_string().replace("clear", "empty")).unwrap();
    let (code, object, _) = import("shop");
    assert_eq!((code, &object["written"]), (Some(1), &false.into()));
    let server = &object["servers"][0];
    assert!(server["changed"].as_array().is_some_and(|changes| !changes.is_empty()), "{server}");
    assert!(server["error"].as_str().unwrap().contains("--accept"), "{server}");
}

#[tokio::test]
async fn a_signal_while_a_secret_is_typed_leaves_the_terminal_as_it_was() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let state = tempfile::tempdir().unwrap();
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let keyboard = openpt(flags).unwrap();
        unlockpt(&keyboard).unwrap();
        let terminal = File::from(ioctl_tiocgptpeer(&keyboard, flags).unwrap());
        let modes = || tcgetattr(&terminal).unwrap().local_modes;
        let before = modes();
        assert!(before.contains(LocalModes::ECHO));
        let mut command = asp(state.path());
        command.args(["link-provider", "add", "github", "--client-id", "x"]);
        command.env("ASP_ADMIN_URL", "http://127.0.0.1:1").env("ASP_ADMIN_TOKEN", "t");
        command.stdin(terminal.try_clone().unwrap()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("It is not shown")), "{signal:?}");
        assert!(!modes().contains(LocalModes::ECHO), "{signal:?}");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = until(|| child.try_wait().unwrap()).await;
        assert_eq!((ended.code(), modes()), (Some(code), before), "{signal:?}");
    }
}
