//! A whole start and stop of the binary on free ports, with an admin's commands between them, and the modes of its files.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Serving, answers_200, asp, primitives, run, text, until};

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
    let bad = run(admin().args(["limits", "add", "acme", "60/week"]));
    assert_eq!(bad.status.code(), Some(64), "{}", text(&bad.stderr));
    let unknown = run(admin().args(["limits", "add", "acme", "1/s on no-such.*"]));
    assert!(!unknown.status.success(), "{}", text(&unknown.stdout));
    let removed = run(admin().args(["limits", "acme", "--remove", "1"]));
    assert!(removed.status.success(), "{}", text(&removed.stderr));
}

fn blocks_a_user(admin: &dyn Fn() -> Command, question: &[&str]) {
    let blocked = run(admin().args(["block", "user", "carl", "--org", "acme", "--reason", "left"]));
    assert!(
        text(&blocked.stdout).starts_with("blocked user carl of acme since "),
        "{}",
        text(&blocked.stderr)
    );
    let listed = run(admin().args(["block", "list", "--org", "acme"]));
    assert!(text(&listed.stdout).starts_with("user carl of acme since "), "{}", text(&listed.stderr));
    let question = [question, &["--user", "carl"]].concat();
    let explained = text(&run(admin().args(&question)).stdout);
    assert!(explained.starts_with("denied: carl of acme is blocked"), "{explained}");
    let lifted = run(admin().args(["unblock", "user", "carl", "--org", "acme"]));
    assert!(text(&lifted.stdout).starts_with("unblocked user carl of acme"), "{}", text(&lifted.stderr));
    let listed = run(admin().args(["block", "list"]));
    assert!(listed.stdout.is_empty(), "{}", text(&listed.stdout));
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
    let server = serving.url("gateway", "/demo/mcp");
    let admin = serving.url("admin", " (admin)");
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
    let changes = run(admin().args(["audit", "--changes", "--org", "acme", "--since", "1h", "--json"]));
    assert!(text(&changes.stdout).contains("\"resource\":\"bindings/acme"), "{}", text(&changes.stderr));
    let exported = run(admin().args(["audit", "--since", "1h", "--export"]));
    assert!(exported.status.success() && exported.stdout.is_empty(), "{}", text(&exported.stderr));
    let wrong = run(admin().args(["audit", "--since", "tomorrow"]));
    assert_eq!(wrong.status.code(), Some(64), "{}", text(&wrong.stderr));
    limits_an_org(state.path(), &admin);
    for change in [["--hide", "demo"], ["--reset", "demo"]] {
        let switched = run(admin().args(["policy", "acme"]).args(change));
        assert!(switched.status.success(), "{change:?}: {}", text(&switched.stderr));
    }
    blocks_a_user(&admin, &question);
    revokes_a_user(&admin, &question);

    let pid = rustix::process::Pid::from_child(&serving.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = until(|| serving.child.try_wait().unwrap()).await;
    assert!(ended.success(), "{ended}");
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
