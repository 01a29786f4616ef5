//! Tests of network access as plugin authors see it: the usual clients of each language reach the allowed names, with
//! and without TLS, and nothing else; no plugin code mentions a proxy.

mod world;

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::attempts::{Language, ask, start};
use super::harness::eventually;
use world::{HOSTS, World, within};

/// Private networks that the operator allows. `secret.test` is as private as `internal.test`, but not in the operator's
/// network. `alias.test` is in it, and is another name.
const ALLOW_PRIVATE: &str = "internal.test=10.9.0.0/16;for=tests/client, secret.test=10.9.0.0/16;for=*";
const LISTED: [&str; 5] = ["service.test", "internal.test", "alias.test", "secret.test", "metadata.test"];

#[tokio::test]
async fn pythons_clients_reach_what_is_allowed() {
    reach(Language::Python, &["urllib", "requests", "httpx"]).await;
}

#[tokio::test]
async fn nodes_clients_reach_what_is_allowed() {
    reach(Language::Node, &["fetch", "https"]).await;
}

#[tokio::test]
async fn javas_clients_reach_what_is_allowed() {
    reach(Language::Java, &["java.net.http", "HttpURLConnection"]).await;
}

async fn reach(language: Language, clients: &[&str]) {
    let world = World::make();
    let plugins = |plugins: &Path| {
        language.install(plugins, "client", &json!({ "allowedDomains": LISTED }));
        // A plugin of another team, with the same names.
        language.install(plugins, "other", &json!({ "allowedDomains": LISTED }));
        if language == Language::Python {
            bring_libraries(&plugins.join("client/1.0.0/package/site-packages"));
        }
    };
    let adapt = |runtime: Command| {
        let mut command = world.around(&runtime);
        command.env("ASP_RUNTIME_EGRESS_ALLOW_PRIVATE", ALLOW_PRIVATE);
        command
    };
    let stack = start(plugins, adapt).await;
    let runtime = stack.child.id();
    world.serve(runtime).await;
    let fetch = async |url: &str, by: &str| {
        let found = ask(&stack, "client", &json!({"fetch": {"url": url, "by": by}})).await;
        found["text"].as_str().unwrap().to_owned()
    };
    for by in clients {
        assert_eq!(fetch("https://service.test/", by).await, "hello from service.test", "{by}");
        assert_eq!(fetch("https://internal.test/", by).await, "hello from internal.test", "{by}");
    }
    assert_eq!(fetch("http://service.test/", clients[0]).await, "hello from service.test");
    assert_eq!(world.served().len(), clients.len() * 2 + 1);
    let url = "https://internal.test/";
    let by = if language == Language::Python { "urllib" } else { clients[0] };
    let found = ask(&stack, "other", &json!({"fetch": {"url": url, "by": by}})).await;
    assert!(
        found["text"].as_str().unwrap().starts_with("denied: "),
        "the operator does not name it: {found}"
    );
    for (host, outcome) in [
        ("unlisted.test", "name_denied"),
        ("alias.test", "address_denied"),
        ("secret.test", "address_denied"),
        ("metadata.test", "address_denied"),
    ] {
        for by in clients {
            let text = fetch(&format!("https://{host}/"), by).await;
            assert!(text.starts_with("denied: "), "{by}, {host}: {text}");
        }
        let audit = stack.log_line(outcome).await;
        assert!(audit.contains("\"audit\":true"), "{audit}");
        let told = || async { stack.logged(outcome).iter().any(|line| line.contains(host)) };
        eventually("the host is named", told).await;
    }
    assert_eq!(
        world.served().len(),
        clients.len() * 2 + 1,
        "nothing else was asked for: {:?}",
        world.served()
    );
    // The control: a process next to the runtime reaches all of them.
    for (host, address) in HOSTS {
        within(runtime, move || TcpStream::connect((address, 443)).map(drop)).expect(host);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pythons_sockets_reach_a_listed_service() {
    reach_by_tcp(Language::Python).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_sockets_reach_a_listed_service() {
    reach_by_tcp(Language::Node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn javas_sockets_reach_a_listed_service() {
    reach_by_tcp(Language::Java).await;
}

/// Starts a service that answers every connection, and returns its port.
async fn echo() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    port
}

async fn reach_by_tcp(language: Language) {
    let listed = echo().await;
    let unlisted = echo().await;
    let plugins = |plugins: &Path| {
        language.install(plugins, "client", &json!({"allowedTcp": [format!("localhost:{listed}")]}));
    };
    let wanted =
        |name: &str, port: u16| json!({"name": name, "do": "tcp", "host": "localhost", "port": port});
    let wanted = json!({"attempts": [wanted("listed", listed), wanted("unlisted", unlisted)]});
    let outside = tempfile::tempdir().unwrap();
    // Blocks this thread; the services answer in others.
    let control = language.outside(&wanted, outside.path());
    assert_eq!(control, json!({"listed": "allowed", "unlisted": "allowed"}), "outside of a sandbox");
    let adapt = |mut runtime: Command| {
        runtime.arg("--egress-development");
        runtime
    };
    let stack = start(plugins, adapt).await;
    let found = ask(&stack, "client", &wanted).await;
    assert_eq!(found["listed"], "allowed", "{found}");
    assert!(found["unlisted"].as_str().unwrap().starts_with("denied: "), "{found}");
    let audit = stack.log_line("\"method\":\"TCP\"").await;
    assert!(audit.contains("\"outcome\":\"allowed\"") && audit.contains(&listed.to_string()), "{audit}");
    // The same service where the operator opens no private address.
    let stack = start(plugins, |runtime| runtime).await;
    let found = ask(&stack, "client", &wanted).await;
    assert!(found["listed"].as_str().unwrap().starts_with("denied: "), "{found}");
    stack.log_line("address_denied").await;
}

#[tokio::test]
async fn a_tunnel_leads_to_the_name_that_was_judged_and_to_no_other_at_its_address() {
    let world = World::make();
    let plugins = |plugins: &Path| {
        Language::Python.install(plugins, "client", &json!({ "allowedDomains": LISTED }));
    };
    let stack = start(plugins, |runtime| world.around(&runtime)).await;
    world.serve(stack.child.id()).await;
    let tunnel = async |to: &str, name: &str| {
        let found = ask(&stack, "client", &json!({"tunnel": {"to": to, "name": name}})).await;
        found["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(tunnel("service.test", "service.test").await, "hello from service.test");
    let other = tunnel("service.test", "unlisted.test").await;
    assert!(other.starts_with("denied: "), "{other}");
    let audit = stack.log_line("server_name_denied").await;
    assert!(audit.contains("\"audit\":true") && audit.contains("service.test"), "{audit}");
    assert_eq!(world.served(), ["service.test"], "the server heard of nothing else");
}

/// Copies the usual libraries to the place where a package has its own; scripts/setup installs them for the shim's
/// tests.
fn bring_libraries(site_packages: &Path) {
    let python = std::env::var("ASP_PYTHON_TEST").expect("ASP_PYTHON_TEST is set: source .tools/env");
    let where_they_are =
        "import httpx, requests, os; print(os.path.dirname(os.path.dirname(requests.__file__)))";
    let told = Command::new(python).args(["-c", where_they_are]).output().unwrap();
    assert!(
        told.status.success(),
        "scripts/setup test installs them: {}",
        String::from_utf8_lossy(&told.stderr)
    );
    let installed = String::from_utf8(told.stdout).unwrap();
    std::fs::create_dir(site_packages).unwrap();
    for name in [
        "requests",
        "urllib3",
        "certifi",
        "charset_normalizer",
        "idna",
        "httpx",
        "httpcore",
        "h11",
        "anyio",
        "typing_extensions.py",
    ] {
        let from = Path::new(installed.trim()).join(name);
        let copied = Command::new("cp").arg("-r").args([&from, &site_packages.join(name)]).status().unwrap();
        assert!(copied.success(), "{}", from.display());
    }
}
