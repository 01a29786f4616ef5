//! The proxy over a real socket.

use super::*;

async fn ask(rules: &[&str], request: &str) -> String {
    ask_by(Rules::new(&rules.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>()), request).await
}

async fn ask_by(rules: Rules, request: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("egress.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let proxy = tokio::spawn(serve(listener, rules, "p@1".into(), "w".into()));
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    proxy.abort();
    answer
}

#[tokio::test]
async fn a_name_that_is_not_listed_is_refused() {
    let answer = ask(&["api.example.com"], "CONNECT evil.example.com:443 HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("name not allowed"), "{answer}");
}

#[tokio::test]
async fn a_listed_name_that_leads_inside_is_refused() {
    for (name, request) in [
        ("localhost", "CONNECT localhost:443 HTTP/1.1\r\n\r\n"),
        ("127.0.0.1", "GET http://127.0.0.1/ HTTP/1.1\r\n\r\n"),
        ("169.254.169.254", "GET http://169.254.169.254/latest HTTP/1.1\r\n\r\n"),
    ] {
        let answer = ask(&[name], request).await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("address not allowed"), "{answer}");
    }
}

#[tokio::test]
async fn a_private_address_is_reached_where_the_operator_lists_its_network() {
    // 127.0.0.1 and, where the machine has it, ::1: nothing listens at their port, which the proxy has to find out.
    let listed: Vec<Network> = ["127.0.0.0/8", "::1"].map(|network| network.parse().unwrap()).into();
    let rules = |networks: &[Network]| Rules::new(&["localhost".to_owned()]).with_private(networks);
    let request = "CONNECT localhost:443 HTTP/1.1\r\n\r\n";
    let answer = ask_by(rules(&listed), request).await;
    assert!(!answer.ends_with("address not allowed"), "{answer}");
    let other: Vec<Network> = vec!["10.0.0.0/8".parse().unwrap()];
    let answer = ask_by(rules(&other), request).await;
    assert!(answer.ends_with("address not allowed"), "{answer}");
}

#[tokio::test]
async fn what_is_no_proxy_request_is_malformed() {
    assert!(ask(&["a.example"], "GET / HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
}
