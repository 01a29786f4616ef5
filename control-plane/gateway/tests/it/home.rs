//! The pages for people who open the platform's address in a browser.

use http::{Method, StatusCode};

use crate::support::{Answer, Fixture, PUBLIC_URL, snapshot};

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

async fn open(fixture: &Fixture, path: &str) -> Answer {
    fixture.send(Method::GET, path, &[BROWSER], "").await
}

/// All fixtures, of which `policy` is exposed by exception alone, and `pay` has no public documents.
fn fixture() -> Fixture {
    let mut snapshot = snapshot();
    for server in &mut snapshot.edge.as_mut().unwrap().servers {
        server.default_allow = server.name != "policy";
    }
    for server in &mut snapshot.servers {
        server.undiscovered = server.name == "pay";
        if ["demo", "policy"].contains(&server.name.as_str()) {
            server.description = format!("<b>what {} does</b>", server.name);
        }
    }
    Fixture::of(snapshot)
}

#[tokio::test]
async fn a_browser_sees_the_public_servers_and_how_to_connect() {
    let fixture = fixture();
    let list = open(&fixture, "/").await;
    assert_eq!(list.status, StatusCode::OK, "{}", list.text);
    assert!(list.headers["content-type"].to_str().unwrap().starts_with("text/html"));
    assert!(list.headers["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
    assert!(list.text.contains("<a href=\"/demo\">demo</a>: &lt;b&gt;what demo does"), "{}", list.text);
    assert!(!list.text.contains("\"/policy\"") && !list.text.contains("\"/pay\""), "{}", list.text);
    let demo = open(&fixture, "/demo").await;
    assert_eq!(demo.status, StatusCode::OK, "{}", demo.text);
    let url = format!("{PUBLIC_URL}/demo/mcp");
    for part in [
        url.as_str(),
        "claude mcp add --transport http demo ",
        "vscode:mcp/install?",
        "cursor://anysphere.cursor-deeplink/mcp/install?name=demo",
        "&lt;b&gt;what demo does",
    ] {
        assert!(demo.text.contains(part), "{part} is missing in {}", demo.text);
    }
}

#[tokio::test]
async fn a_page_shows_no_more_than_the_registry_and_a_challenge_do() {
    let fixture = fixture();
    let policy = open(&fixture, "/policy").await;
    assert!(
        policy.text.contains("/policy/mcp") && !policy.text.contains("what policy does"),
        "{}",
        policy.text
    );
    for path in ["/pay", "/nobody"] {
        let answer = open(&fixture, path).await;
        assert_eq!(
            (answer.status, answer.headers["content-type"].to_str().unwrap()),
            (StatusCode::NOT_FOUND, "application/problem+json"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn programs_get_the_answer_for_an_unknown_path() {
    let fixture = fixture();
    for path in ["/", "/demo"] {
        let answer = fixture.send(Method::GET, path, &[("accept", "*/*")], "").await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        let posted = fixture.send(Method::POST, path, &[BROWSER], "").await;
        assert_eq!(posted.status, StatusCode::NOT_FOUND, "{path}");
    }
}
