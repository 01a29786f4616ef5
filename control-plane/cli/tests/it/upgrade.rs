//! `asp upgrade check` against a running control plane, and a write that is rejected if the resource changed since it was read.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{GUARD, asp, primitives, text};

fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(begun.elapsed() < GUARD, "it happens in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A control plane with the samples, and a platform admin.
struct Running {
    state: tempfile::TempDir,
    child: Child,
    url: String,
    token: String,
}

impl Running {
    fn start() -> Running {
        let state = tempfile::tempdir().unwrap();
        let mut serve = asp(state.path());
        serve.args(["serve", "--dev", "--primitives"]).arg(primitives());
        let child = serve.stderr(Stdio::null()).spawn().unwrap();
        let file = state.path().join("ports.json");
        let ports: Value = until(|| serde_json::from_slice(&std::fs::read(&file).ok()?).ok());
        let url = format!("http://127.0.0.1:{}", ports["admin"]);
        let minted = asp(state.path()).args(["token", "--admin", "--user", "ops"]).output().unwrap();
        let running = Running { token: text(&minted.stdout).trim().to_owned(), state, child, url };
        until(|| running.run(&["status"]).status.success().then_some(()));
        running
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = asp(self.state.path());
        command.env("ASP_ADMIN_URL", &self.url).env("ASP_ADMIN_TOKEN", &self.token);
        command.args(args).output().unwrap()
    }

    fn good(&self, args: &[&str]) {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Err: it has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_check_prints_what_is_missing_stores_offers_and_then_finds_nothing() {
    let running = Running::start();
    running.good(&["policy", "acme", "--expose", "webex-compliance", "--force"]);
    running.good(&["servers", "offer", "webex-compliance", "--to", "acme", "--withdraw"]);
    let settings = running.state.path().join("control.env");
    std::fs::write(&settings, "ASP_UPSTREAMS=unused.internal=http://10.0.0.5\n").unwrap();
    let settings = settings.to_str().unwrap();
    let check = |more: &[&str]| running.run(&[&["upgrade", "check", "--settings", settings], more].concat());

    let found = check(&[]);
    let said = text(&found.stdout);
    assert_eq!(found.status.code(), Some(1), "{said}{}", text(&found.stderr));
    let lines: Vec<&str> = said.lines().collect();
    for line in [
        "asp servers offer webex-compliance --to acme",
        "ASP_UPSTREAMS='unused.internal=http://10.0.0.5;for='",
    ] {
        assert!(lines.contains(&line), "{line}\n{said}");
    }
    let offered = || text(&running.run(&["servers", "show", "webex-compliance"]).stdout);
    assert!(offered().contains("not offered to any org"), "a check changes nothing: {}", offered());

    let written = check(&["--write"]);
    let said = text(&written.stdout);
    assert!(
        said.contains("# stored: webex-compliance is offered to acme"),
        "{said}{}",
        text(&written.stderr)
    );
    assert_eq!(written.status.code(), Some(1), "the setting is left: {said}");
    assert!(offered().contains("offered to acme"), "{}", offered());
    std::fs::write(settings, "ASP_UPSTREAMS=\"unused.internal=http://10.0.0.5;for=\"\n").unwrap();
    let done = check(&[]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stdout));

    std::fs::write(settings, "ASP_PUBLIC_URL=https://mcp.example.com\nASP_UPSTREAM=crm=http://10.0.0.5\n")
        .unwrap();
    let misspelt = check(&[]);
    let said = text(&misspelt.stdout);
    assert_eq!(misspelt.status.code(), Some(1), "{said}");
    let named = format!("# ASP_UPSTREAM in {settings}: no process reads a setting of this name");
    assert!(said.contains(&named) && said.contains("the nearest one is ASP_UPSTREAMS"), "{said}");
    let mut without = asp(running.state.path());
    without.env_clear().env("ASP_ADMIN_URL", &running.url).env("ASP_ADMIN_TOKEN", &running.token);
    let without = without.args(["upgrade", "check"]).output().unwrap();
    let said = text(&without.stdout);
    assert_eq!(without.status.code(), Some(1), "{said}");
    assert!(said.contains("# no setting of a control plane, gateway or runtime was given"), "{said}");
}

/// Answers two requests of a command and returns them.
fn api(listener: &TcpListener, etag: &str) -> Vec<String> {
    let mut requests = Vec::new();
    for _ in 0..2 {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut request, mut part) = (Vec::new(), [0; 4096]);
        let is_whole = |request: &[u8]| {
            let text = String::from_utf8_lossy(request).to_lowercase();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            body.len() >= length.unwrap_or(0_usize)
        };
        while !is_whole(&request) {
            let read = stream.read(&mut part).unwrap();
            assert!(read > 0, "a whole request");
            request.extend_from_slice(&part[..read]);
        }
        let body = r#"{"groups":["old"],"scopes":[],"beyond":[]}"#;
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{etag}content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        requests.push(text(&request).to_lowercase());
    }
    requests
}

#[test]
fn a_bound_of_machines_is_written_over_what_was_read_alone() {
    let state = tempfile::tempdir().unwrap();
    for (etag, condition) in [("etag: \"7\"\r\n", "if-match: \"7\"\r\n"), ("", "if-none-match: *\r\n")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut command = asp(state.path());
        command.env("ASP_ADMIN_URL", url).env("ASP_ADMIN_TOKEN", "t");
        command.args(["machines", "bound", "acme", "--allow-group", "robots"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let requests = api(&listener, etag);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(requests[0].starts_with("get ") && requests[1].starts_with("put "), "{requests:?}");
        assert!(requests[1].contains(condition), "{}", requests[1]);
    }
}
