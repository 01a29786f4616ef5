//! The binary itself: exit codes, output, and a whole start and stop on free ports. More than 500 lines, because each test
//! file links the whole program again.

// A helper of a test fails like the test itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::{GUARD, asp, primitives, text};

fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

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

/// A running `asp serve`, killed with the test.
struct Serving {
    child: std::process::Child,
    ports: Value,
}

impl Serving {
    async fn start(state: &Path) -> Serving {
        Serving::run(asp(state).args(["serve", "--dev", "--primitives"]).arg(primitives()), state).await
    }

    async fn run(command: &mut Command, state: &Path) -> Serving {
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let file = state.join("ports.json");
        let ports = until(|| serde_json::from_slice(&std::fs::read(&file).ok()?).ok()).await;
        Serving { child, ports }
    }

    fn url(&self, name: &str, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.ports[name])
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Err: it has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    tokio::time::timeout(GUARD, async {
        loop {
            if let Some(value) = found() {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("it happens in time")
}

async fn answers_200(url: &str) {
    let asked = async {
        loop {
            if let Ok(response) = reqwest::get(url).await
                && response.status() == 200
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(GUARD, asked).await.unwrap_or_else(|_| panic!("{url} does not answer 200"));
}

fn manages_lists(state: &Path, admin: &dyn Fn() -> Command) {
    let routes = state.join("routes.yaml");
    std::fs::write(&routes, "[{primitive: \"risky.*\", pool: sandboxed}]").unwrap();
    let stored = run(admin().args(["routes", "put"]).arg(&routes));
    assert_eq!(text(&stored.stdout), "risky.* of * by * -> sandboxed\n", "{}", text(&stored.stderr));
    for lists in [["routes", "pools"], ["regions", "list"], ["regions", "homes"], ["artifacts", "list"]] {
        let listed = run(admin().args(lists).arg("--json"));
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert!(listed.is_array(), "{lists:?}: {listed}");
    }
}

fn undoes_a_binding(admin: &dyn Fn() -> Command) {
    let denied = run(admin().args(["policy", "acme", "--deny", "echo", "--user", "bob"]));
    assert!(denied.status.success(), "{}", text(&denied.stderr));
    let policy = run(admin().args(["policy", "acme"]));
    assert!(text(&policy.stdout).contains("\"bob\""), "{}", text(&policy.stdout));
    let changes = run(admin().args(["history", "--kind", "binding", "--json"]));
    let changes: Value = serde_json::from_slice(&changes.stdout).unwrap();
    let change = changes[0]["revision"].to_string();
    let shown = run(admin().args(["undo", &change, "--dry-run"]));
    let gain = "gives access: user bob: echo of demo over mcp: denied -> allowed";
    assert!(text(&shown.stdout).contains(gain), "{} {}", text(&shown.stdout), text(&shown.stderr));
    let asked = run(admin().args(["undo", &change]).stdin(Stdio::null()));
    assert_eq!(asked.status.code(), Some(64), "nobody can answer: {}", text(&asked.stdout));
    let undone = run(admin().args(["undo", &change, "--yes", "--json"]));
    let undone: Value = serde_json::from_slice(&undone.stdout).unwrap();
    let policy = run(admin().args(["policy", "acme"]));
    assert!(!text(&policy.stdout).contains("\"bob\""), "{}", text(&policy.stdout));
    let again = undone["undo"]["revision"].to_string();
    let again = run(admin().args(["undo", &again, "--yes"]));
    assert!(text(&again.stdout).contains("undone by change"), "{}", text(&again.stderr));
}

fn limits_an_org(state: &Path, admin: &dyn Fn() -> Command) {
    let file = state.join("limits.yaml");
    std::fs::write(&file, "[{selector: {user: \"*\"}, policy: {capacity: 20, refill: 5/s}}]").unwrap();
    let limited = run(admin().args(["limits", "acme", "--put"]).arg(&file));
    assert!(limited.status.success(), "{}", text(&limited.stderr));
    let removed = run(admin().args(["limits", "acme", "--remove", "1"]));
    assert!(removed.status.success(), "{}", text(&removed.stderr));
    let removed = run(admin().args(["limits", "acme", "--remove", "1"]));
    assert!(text(&removed.stderr).contains("acme has 0 limits and no number 1"), "{}", text(&removed.stderr));
    let line = "60/min for each user on echo";
    let added = run(admin().args(["limits", "add", "acme", line]));
    let words = "acme: limit 1: 60 calls a minute for each user on echo, up to 60 at once; ";
    assert!(text(&added.stdout).starts_with(words), "{} {}", text(&added.stdout), text(&added.stderr));
    let tried = run(admin().args(["limits", "add", "acme", "5/min", "--dry-run"]));
    let words = "acme: not stored: 5 calls a minute for each user, up to 5 at once\nit ";
    assert!(text(&tried.stdout).starts_with(words), "{} {}", text(&tried.stdout), text(&tried.stderr));
    let listed = run(admin().args(["limits", "acme"]));
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed[0]["selector"]["user"], "each", "{listed}");
    assert_eq!(listed[0]["policy"]["refill"], "60/m", "{listed}");
    let usage = run(admin().args(["limits", "acme", "--usage"]));
    let first = "\n1: 60 calls a minute for each user on echo, up to 60 at once\n  it ";
    assert!(text(&usage.stdout).contains(first), "{} {}", text(&usage.stdout), text(&usage.stderr));
    let bad = run(admin().args(["limits", "add", "acme", "60/day"]));
    assert_eq!(bad.status.code(), Some(64), "{}", text(&bad.stderr));
    let unknown = run(admin().args(["limits", "add", "acme", "1/s on no-such.*"]));
    assert!(!unknown.status.success(), "{}", text(&unknown.stdout));
    let removed = run(admin().args(["limits", "acme", "--remove", "1"]));
    assert!(removed.status.success(), "{}", text(&removed.stderr));
}

fn revokes_a_user(admin: &dyn Fn() -> Command, question: &[&str]) {
    let revoked = run(admin().args(["revoke", "--org", "acme", "--user", "bob"]));
    assert!(text(&revoked.stdout).starts_with("revoked"), "{}", text(&revoked.stderr));
    let listed = run(admin().args(["revoke", "--list", "--org", "acme"]));
    assert!(text(&listed.stdout).contains(" user bob of acme, made "), "{}", text(&listed.stderr));
    let question = [question, &["--user", "bob"]].concat();
    let explained = text(&run(admin().args(&question)).stdout);
    let lift = explained.split("`asp revoke --lift ").nth(1).and_then(|rest| rest.split('`').next());
    let lifted = run(admin().args(["revoke", "--lift", lift.expect(&explained)]));
    assert!(text(&lifted.stdout).starts_with("lifted ("), "{}", text(&lifted.stderr));
    let explained = text(&run(admin().args(&question)).stdout);
    assert!(explained.starts_with("denied: a binding") && !explained.contains("revoked:"), "{explained}");
}

#[tokio::test]
async fn a_served_directory_reaches_the_gateway_and_a_signal_ends_it_cleanly() {
    let state = tempfile::tempdir().unwrap();
    let said = tempfile::NamedTempFile::new().unwrap();
    let mut command = asp(state.path());
    command.args(["serve", "--dev", "--primitives"]).arg(primitives()).stdout(said.reopen().unwrap());
    let mut serving = Serving::run(&mut command, state.path()).await;
    answers_200(&serving.url("gateway", "/readyz")).await;
    answers_200(&serving.url("admin", "/readyz")).await;
    let (server, admin) = (serving.url("gateway", "/demo/mcp"), serving.url("admin", " (admin)"));
    let is_whole = |text: &String| [&server, &admin].into_iter().all(|address| text.contains(address));
    until(|| std::fs::read_to_string(said.path()).ok().filter(is_whole)).await;

    let minted = run(asp(state.path()).args(["token", "--admin", "--user", "ops"]));
    let token = text(&minted.stdout).trim().to_owned();
    let admin = || {
        let mut command = asp(state.path());
        command.env("ASP_ADMIN_URL", serving.url("admin", "")).env("ASP_ADMIN_TOKEN", &token);
        command
    };
    let status = run(admin().args(["status", "--json"]));
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["subscribers"][0]["kind"], "gateway");
    assert_eq!(status["endpoints"]["gateway"].as_array().unwrap().len(), 1);

    let applied = run(admin().args(["apply", "--json"]).arg(primitives()));
    let applied: Value = serde_json::from_slice(&applied.stdout).unwrap();
    assert!(applied.as_array().unwrap().iter().all(|server| server["changed"] == false), "{applied}");
    let differs = run(admin().args(["diff", "--json"]).arg(primitives()));
    let differs: Value = serde_json::from_slice(&differs.stdout).unwrap();
    assert!(differs.as_array().unwrap().iter().all(|server| server["state"] == "unchanged"), "{differs}");

    let audit = run(admin().args(["audit", "--org", "acme", "--json"]));
    assert!(audit.status.success() && audit.stdout.is_empty(), "{}", text(&audit.stderr));

    manages_lists(state.path(), &admin);
    let question = ["explain", "--org", "acme", "--server", "demo", "--primitive", "echo"];
    let explained = run(admin().args(question));
    assert!(text(&explained.stdout).starts_with("allowed: demo is exposed"), "{}", text(&explained.stdout));

    undoes_a_binding(&admin);
    limits_an_org(state.path(), &admin);
    for change in [["--hide", "demo"], ["--reset", "demo"]] {
        let switched = run(admin().args(["policy", "acme"]).args(change));
        assert!(switched.status.success(), "{change:?}: {}", text(&switched.stderr));
    }
    revokes_a_user(&admin, &question);

    let pid = rustix::process::Pid::from_child(&serving.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = until(|| serving.child.try_wait().unwrap()).await;
    assert!(ended.success(), "{ended}");
}

#[tokio::test]
async fn what_breaks_callers_ends_diff_and_apply_with_3_until_it_is_forced() {
    let control = Admin::start().await;
    let mine = control.state.path().join("mine/demo");
    std::fs::create_dir_all(&mine).unwrap();
    for entry in std::fs::read_dir(primitives().join("demo")).unwrap() {
        let file = entry.unwrap().path();
        if file.is_file() {
            let text = std::fs::read_to_string(&file).unwrap().replace("maxLength: 65536", "maxLength: 10");
            // Another server lists the same primitive at its first version.
            let text = text.replace("version: 1.0.0", "version: 1.1.0");
            std::fs::write(mine.join(file.file_name().unwrap()), text).unwrap();
        }
    }
    let directory = control.state.path().join("mine");
    let directory = directory.to_str().unwrap();
    let admin = |args: &[&str]| control.run(&[args, &[directory]].concat());
    let diff = admin(&["diff"]);
    assert_eq!(diff.status.code(), Some(3), "{}", text(&diff.stderr));
    assert!(text(&diff.stdout).contains("BREAKING without a new major version"), "{}", text(&diff.stdout));
    let refused = admin(&["apply"]);
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("breaking_change"), "{}", text(&refused.stderr));
    let forced = admin(&["apply", "--force"]);
    assert_eq!(forced.status.code(), Some(0), "{}", text(&forced.stderr));
    assert!(text(&forced.stdout).contains("BREAKING"), "apply prints the changes: {}", text(&forced.stdout));
    assert_eq!(admin(&["diff"]).status.code(), Some(0), "now it is what is stored");
}

#[tokio::test]
async fn a_directory_is_deployed_after_a_plan_that_changes_nothing() {
    let admin = Admin::start().await;
    let root = admin.state.path().join("mine");
    let folder = root.join("salute");
    std::fs::create_dir_all(&folder).unwrap();
    let server = "apiVersion: asp/v1\nname: salute\ndescription: A test.\nversion: 1.0.0\nprotocols: [mcp]\n\
        defaultExposure: allow\nauth: {schemes: [jwt], issuers: [dev]}\nprimitives:\n  - ref: salute/salute\n";
    std::fs::write(folder.join("server.yaml"), server).unwrap();
    let spec = |schema: &str| {
        let text = format!(
            "id: salute\nname: salute\ntype: tool\nversion: 1.0.0\nowner: test@example.com\nsummary: Tests it.\n\
             mutation: read_only\nprimitiveSchema: {{input_schema: {schema}}}\nsecurity: {{riskClass: low}}\n\
             runtime: {{mode: builtin, entrypoint: echo}}\n"
        );
        std::fs::write(folder.join("salute.yaml"), text).unwrap();
    };
    spec("{type: object, properties: {who: {type: string}}, required: [who]}");
    let directory = root.to_str().unwrap();
    let plan = admin.good(&["deploy", directory, "--plan"]);
    assert_eq!(
        plan,
        "apply    salute: new\naccess   salute: every organisation gains it (`defaultExposure: allow`)\n"
    );
    let refused = admin.run(&["deploy", directory]);
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("deploy with --yes"), "{said}");
    assert!(!admin.good(&["servers", "list"]).contains("salute"), "neither has stored it");

    let done = admin.good(&["deploy", directory, "--yes"]);
    assert!(done.contains("salute: applied at revision"), "{done}");
    let end = "served: salute at http://127.0.0.1:8080/salute/mcp\n  next: asp call salute salute --arg 'who=STRING'\n";
    assert!(done.ends_with(end), "{done}");
    let again = admin.good(&["deploy", directory]);
    assert!(
        again.starts_with("apply    salute: unchanged") && again.ends_with(end),
        "nothing to ask: {again}"
    );

    spec("{type: object, properties: {who: {type: integer}}, required: [who]}");
    let breaking = admin.run(&["deploy", directory, "--yes"]);
    assert_eq!(breaking.status.code(), Some(3), "{}", text(&breaking.stderr));
    assert!(text(&breaking.stdout).contains("BREAKING"), "{}", text(&breaking.stdout));
    admin.good(&["deploy", directory, "--yes", "--force", "--json"]);
}

/// A control plane, and a platform admin who runs commands against it.
struct Admin {
    state: tempfile::TempDir,
    serving: Serving,
    token: String,
}

impl Admin {
    async fn start() -> Admin {
        let state = tempfile::tempdir().unwrap();
        let serving = Serving::start(state.path()).await;
        answers_200(&serving.url("admin", "/readyz")).await;
        let minted = run(asp(state.path()).args(["token", "--admin", "--user", "ops"]));
        let token = text(&minted.stdout).trim().to_owned();
        Admin { state, serving, token }
    }

    fn run(&self, args: &[&str]) -> Output {
        self.run_as(&self.token, args)
    }

    fn run_as(&self, token: &str, args: &[&str]) -> Output {
        let mut command = asp(self.state.path());
        command.env("ASP_ADMIN_URL", self.serving.url("admin", "")).env("ASP_ADMIN_TOKEN", token);
        run(command.args(args))
    }

    fn good(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn listed(&self, kind: &str) -> Value {
        serde_json::from_str(&self.good(&["machines", kind, "list", "acme", "--json"])).unwrap()
    }
}

#[tokio::test]
async fn keys_of_machines_are_made_rotated_and_revoked_by_commands() {
    let admin = Admin::start().await;
    let refused = admin.run(&["machines", "keys", "create", "acme", "press", "--group", "robots"]);
    assert!(text(&refused.stderr).contains("asp machines bound acme --allow-group robots"), "{refused:?}");
    admin.good(&["machines", "bound", "acme", "--allow-group", "robots", "--allow-group", "old"]);
    let shown = admin.good(&["machines", "bound", "acme", "--withdraw-group", "old"]);
    assert_eq!(shown, "groups: robots\nscopes: none\nbeyond the bound, opens nothing: none\n");
    let made =
        admin.good(&["machines", "keys", "create", "acme", "press", "--group", "robots", "--ttl", "1h"]);
    let is_key = |made: &str| made.starts_with("asp_psk_") && made.lines().count() == 1;
    assert!(is_key(&made), "the key stands alone");
    let first = admin.listed("keys")[0].clone();
    let id = first["id"].as_str().unwrap();
    assert!(made.contains(id) && first.get("key").is_none());
    let next = admin.good(&["machines", "keys", "rotate", "acme", id]);
    assert!(is_key(&next) && next != made);
    let both = admin.listed("keys");
    let lives = |key: &Value| key["expiresAt"].as_u64().unwrap() - key["createdAt"].as_u64().unwrap();
    let same = |one: &Value| (one["machine"].clone(), one["groups"].clone(), lives(one));
    assert_eq!((both.as_array().unwrap().len(), same(&both[0])), (2, same(&both[1])));
    let shown: Value =
        serde_json::from_str(&admin.good(&["machines", "keys", "create", "acme", "arm", "--json"])).unwrap();
    assert!(shown["key"].as_str().is_some_and(is_key), "{shown}");
    assert!(admin.good(&["machines", "keys", "revoke", "acme", id]).starts_with("revoked"));
    assert!(!admin.good(&["machines", "keys", "list", "acme"]).contains(id));
    let gone = admin.run(&["machines", "keys", "rotate", "acme", id]);
    assert!(gone.status.code() == Some(1) && gone.stdout.is_empty(), "{}", text(&gone.stdout));
}

#[tokio::test]
async fn certificates_of_machines_are_registered_and_revoked_by_commands() {
    let admin = Admin::start().await;
    let file = admin.state.path().join("press.crt");
    std::fs::write(&file, "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n").unwrap();
    let file = file.to_str().unwrap();
    admin.good(&["machines", "certificates", "register", "acme", "press", "--certificate", file]);
    let by_uri =
        ["machines", "certificates", "register", "acme", "press", "--uri", "spiffe://factory.example/press"];
    assert!(admin.good(&by_uri).starts_with("registered: "));
    let certificates = admin.listed("certificates");
    assert_eq!(certificates.as_array().unwrap().len(), 2);
    let taken = admin.run(&["machines", "certificates", "register", "other", "press", "--certificate", file]);
    assert!(text(&taken.stderr).contains("certificate_in_use"), "{}", text(&taken.stderr));
    admin.good(&["machines", "certificates", "revoke", "acme", certificates[0]["id"].as_str().unwrap()]);
    assert_eq!(admin.listed("certificates").as_array().unwrap().len(), 1);
    let nothing = admin.run(&["machines", "certificates", "register", "acme", "press"]);
    assert_ne!(nothing.status.code(), Some(0), "one of three says which it is");
}

#[tokio::test]
async fn bindings_with_conditions_are_written_by_commands() {
    let admin = Admin::start().await;
    admin.good(&[
        "policy",
        "acme",
        "--approval",
        "echo",
        "--when",
        "/message",
        "glob",
        "*now*",
        "--name",
        "now",
        "--observe",
    ]);
    let policy: Value = serde_json::from_str(&admin.good(&["policy", "acme"])).unwrap();
    let binding = &policy["bindings"][0];
    assert_eq!(
        (&binding["name"], &binding["approval"], &binding["observe"]),
        (&"now".into(), &true.into(), &true.into())
    );
    assert_eq!(binding["when"][0]["glob"], "*now*");
    let question =
        ["explain", "--org", "acme", "--server", "demo", "--primitive", "echo", "--json", "--arguments"];
    let explained = admin.good(&[question.as_slice(), &[r#"{"message": "do it now"}"#]].concat());
    assert!(explained.contains("needs_approval"), "{explained}");
    for wrong in [
        ["policy", "acme", "--deny", "echo", "--when", "/message", "is", "now"].as_slice(),
        &["policy", "acme", "--deny", "echo", "--when", "/message", "range", "now"],
        &["policy", "acme", "--deny", "echo", "--when", "/message", "equals"],
        &["policy", "acme", "--when", "/message", "equals", "now"],
        &["policy", "acme", "--approval", "echo"],
        &["policy", "acme", "--expose", "demo", "--observe"],
    ] {
        assert_ne!(admin.run(wrong).status.code(), Some(0), "{wrong:?}");
    }
    let missing = admin.run(&["policy", "acme", "--remove", "echo"]);
    let said = text(&missing.stderr);
    let removes = ["asp policy acme --remove echo --user '*' --name now", "--machine '*' --name now"];
    assert!(missing.status.code() == Some(1) && removes.iter().all(|wanted| said.contains(wanted)), "{said}");
    let removed = admin.good(&["policy", "acme", "--remove", "echo", "--name", "now"]);
    assert_eq!(removed.matches("acme: removed: an observed binding `now`").count(), 2, "{removed}");
    let policy: Value = serde_json::from_str(&admin.good(&["policy", "acme"])).unwrap();
    assert_eq!(policy["bindings"], serde_json::json!([]));
    let allows = admin.run(&["policy", "acme", "--allow", "echo", "--when", "/message", "equals", "now"]);
    assert!(text(&allows.stderr).contains("allows nothing"), "{}", text(&allows.stderr));
}

#[tokio::test]
async fn a_call_that_a_condition_denies_is_explained_without_lifting_the_bound() {
    let admin = Admin::start().await;
    let words = |line: &'static str| line.split(' ').collect::<Vec<_>>();
    admin.good(&words("policy acme --deny echo --user bob --name never --when /message equals now"));
    let question = words("explain --org acme --user bob --server demo --primitive echo --arguments");
    let denied = admin.run(&[question.as_slice(), &[r#"{"message": "now"}"#]].concat());
    let said = text(&denied.stdout);
    assert_eq!(denied.status.code(), Some(1), "{said}");
    let command = r#"`asp policy acme --deny echo --user bob --name never --when /message equals '"now"'`"#;
    assert!(said.contains(command) && !said.contains("--remove") && !said.contains("--allow"), "{said}");
}

#[tokio::test]
async fn a_server_goes_back_to_an_earlier_version_by_commands() {
    let admin = Admin::start().await;
    let list: Value = serde_json::from_str(&admin.good(&["servers", "list", "--json"])).unwrap();
    assert!(list.as_array().unwrap().iter().any(|server| server["server"] == "demo"), "{list}");
    assert!(admin.good(&["servers", "list"]).contains("demo"));
    assert!(admin.good(&["tools"]).lines().any(|line| line.starts_with("demo ") && line.contains("echo")));
    let versions: Value =
        serde_json::from_str(&admin.good(&["servers", "versions", "demo", "--json"])).unwrap();
    let revision = versions[0]["revision"].to_string();
    assert!(admin.good(&["servers", "versions", "demo"]).starts_with(&revision));
    let back = admin.good(&["servers", "rollback", "demo", "--to", &revision]);
    assert_eq!(back.trim(), "demo is that already");
    let unknown = admin.run(&["servers", "rollback", "demo", "--to", "999999"]);
    assert!(unknown.status.code() == Some(1) && text(&unknown.stderr).contains("not_found"), "{unknown:?}");
    assert_eq!(admin.run(&["servers", "rollback", "demo"]).status.code(), Some(64), "no version is named");
    for (mistyped, meant) in [
        (["servers", "show", "demoo", "--org", "acme"], "no server is called demoo: did you mean demo?"),
        (["servers", "offer", "demo", "--to", "acmee"], "no org is called acmee: did you mean acme?"),
    ] {
        let refused = admin.run(&mistyped);
        assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(1), String::new()), "{mistyped:?}");
        assert!(text(&refused.stderr).contains(meant), "{}", text(&refused.stderr));
    }
}

#[tokio::test]
async fn a_server_that_is_not_offered_is_shown_alike_to_each_role() {
    let admin = Admin::start().await;
    let minted =
        run(asp(admin.state.path()).args(["token", "--admin", "--user", "eve", "--role", "org:acme"]));
    let of_org = text(&minted.stdout).trim().to_owned();
    let show = ["servers", "show", "webex-compliance"];
    let of_acme = [show.as_slice(), &["--org", "acme"]].concat();
    for token in [&admin.token, &of_org] {
        let shown = admin.run_as(token, &of_acme);
        let said = text(&shown.stdout);
        assert_eq!(shown.status.code(), Some(1), "{said}");
        assert!(
            said.starts_with("webex-compliance for acme: offered no. An admin of webex-compliance"),
            "{said}"
        );
        let json = admin.run_as(token, &[of_acme.as_slice(), &["--json"]].concat());
        let state: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!((json.status.code(), &state["offered"]), (Some(1), &false.into()), "{state}");
    }
    let refused = admin.run_as(&of_org, &show);
    assert_eq!(refused.status.code(), Some(1));
    let hint = "`asp servers show webex-compliance --org ORG`";
    assert!(text(&refused.stderr).contains(hint), "{}", text(&refused.stderr));
    admin.good(&["servers", "offer", "webex-compliance", "--to", "acme", "--force"]);
    assert_eq!(admin.run_as(&of_org, &of_acme).status.code(), Some(0));
}

#[tokio::test]
async fn a2a_is_confirmed_for_a_new_server_and_for_none_that_does_not_list_it() {
    let admin = Admin::start().await;
    let confirm = |server: &'static str| ["servers", "confirm", server, "--protocol", "a2a"];
    let said = admin.good(&confirm("webex-compliance"));
    assert_eq!(said.trim(), "a2a is confirmed for webex-compliance already");
    let refused = admin.run(&confirm("demo"));
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("demo/server.yaml does not list a2a"), "{said}");
}

#[tokio::test]
async fn two_commands_say_the_same_of_a_server_that_is_on_over_one_protocol_alone() {
    let admin = Admin::start().await;
    admin.good(&["policy", "acme", "--hide", "demo", "--force"]);
    let state = "demo for acme: offered yes, switched on yes (over rest), no (over mcp)";
    let shown = admin.good(&["servers", "show", "demo", "--org", "acme"]);
    assert!(shown.starts_with(&format!("{state}, allowed: depends")), "{shown}");
    let question = "explain --org acme --user bob --server demo --primitive echo --protocol";
    let explain = |protocol: &str| {
        let words: Vec<&str> = question.split(' ').chain([protocol]).collect();
        text(&admin.run(&words).stdout)
    };
    let over_mcp = explain("mcp");
    assert!(
        over_mcp
            .contains(&format!("{state}. An admin of acme switches it on: `asp policy acme --expose demo`"))
    );
    let over_rest = explain("rest");
    assert!(over_rest.contains(&format!("{state}, allowed yes")), "{over_rest}");
}

/// Returns every file and directory below `directory`, and the directory itself, with its mode.
fn modes(directory: &Path) -> Vec<(PathBuf, u32)> {
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    let mut found = vec![(directory.to_owned(), mode(directory))];
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(modes(&path));
        } else {
            found.push((path.clone(), mode(&path)));
        }
    }
    found
}

#[tokio::test]
async fn what_a_process_of_an_ordinary_umask_keeps_is_its_owners_alone() {
    let parent = tempfile::tempdir().unwrap();
    let state = parent.path().join("state");
    // As an operator may have created it, with a key whose mode is that of an earlier version or a copy.
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("seal-key"), [7; 32]).unwrap();
    for (path, mode) in [(state.clone(), 0o755), (state.join("seal-key"), 0o644)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = asp(&state);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "umask 022; exec \"$0\" serve --dev --primitives \"$1\""]);
    shell.arg(command.get_program()).arg(primitives()).env_clear();
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let serving = Serving::run(&mut shell, &state).await;
    answers_200(&serving.url("gateway", "/readyz")).await;
    answers_200(&serving.url("admin", "/readyz")).await;
    assert!(run(command.args(["token", "--admin", "--user", "ops"])).status.success());
    let found = modes(&state);
    for name in ["asp.db", "asp.db-wal", "calls.db-wal", "calls-leases.db", "audit.db", "dev-issuer.json"] {
        assert!(found.iter().any(|(path, _)| path.ends_with(name)), "{name} is missing");
    }
    for (path, mode) in found {
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
    }
}
