//! The page for admins: what it may do in a browser.

use axum::body::Body;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt;

use super::Api;

/// Asks without a token.
async fn ask(api: &Api, path: &str) -> (HeaderMap, String) {
    let request = Request::builder().uri(path).header(header::HOST, "localhost");
    let response = api.raw(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    let headers = response.headers().clone();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (headers, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn the_page_runs_its_own_script_alone_and_writes_no_html() {
    let api = Api::start().await;
    let (headers, page) = ask(&api, "/admin").await;
    let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    let rules: Vec<&str> = policy.split("; ").collect();
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ] {
        assert!(rules.contains(&rule), "{rule}: {policy}");
    }
    assert_eq!(headers[header::CACHE_CONTROL], "no-store");
    assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert_eq!(
        page.matches("<script").count(),
        page.matches("<script src=\"/admin/").count(),
        "no inline script"
    );
    for inline in ["<style", " style=", "onclick", "onload", "onerror", "javascript:"] {
        assert!(!page.contains(inline), "{inline}");
    }
    let (headers, script) = ask(&api, "/admin/page.js").await;
    assert!(headers[header::CONTENT_TYPE].to_str().unwrap().starts_with("text/javascript"));
    for sink in
        ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage", "cookie"]
    {
        assert!(!script.contains(sink), "{sink}");
    }
    let (headers, _) = ask(&api, "/admin/page.css").await;
    assert!(headers[header::CONTENT_TYPE].to_str().unwrap().starts_with("text/css"));
}
