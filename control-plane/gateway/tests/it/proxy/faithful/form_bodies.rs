//! I-14: a service that takes forms gets arguments as they were written.

use asp_proto::snapshot::proxy_http::BodyFormat;

use super::*;

/// `echo` at a service that takes its argument `body` as a form, and the service's requests as `content type` and body.
async fn service(format: BodyFormat) -> (Fixture, Arc<Mutex<Vec<(String, String)>>>) {
    service_of(ProxyHttp {
        body: "/body".into(),
        body_format: format.into(),
        body_styles: [("expand".to_owned(), "deepObject".to_owned())].into(),
        ..http_mapping("/")
    })
    .await
}

/// The same with any mapping.
async fn service_of(mapping: ProxyHttp) -> (Fixture, Arc<Mutex<Vec<(String, String)>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = seen.clone();
    let service = axum::Router::new().fallback(async move |request: Request| {
        let types: Vec<&str> =
            request.headers().get_all("content-type").iter().map(|kind| kind.to_str().unwrap()).collect();
        let types = types.join(", ");
        let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
        record.lock().push((types, String::from_utf8(body.to_vec()).unwrap()));
        axum::Json(json!({"ok": true}))
    });
    let upstream = format!("http://{}", serve(service).await);
    let mut snapshot = with_runtime("echo", Mode::ProxyHttp(mapping), Mutation::ReadOnly, &upstream);
    open_echo(&mut snapshot, &json!({"type": "object", "properties": {"body": {"type": "object"}}}));
    (Fixture::of(snapshot), seen)
}

#[tokio::test]
async fn arguments_reach_a_service_as_a_form() {
    const BODY: &str = r#"{"n":340282366920938463463374607431768211455,"s":"&=+% \u00e4","a":[1.0,0.10],"none":null,"expand":["x"]}"#;
    let (fixture, seen) = service(BodyFormat::Form).await;
    let answer = call(&fixture, true, &format!(r#"{{"body":{BODY}}}"#), r#""a/b":1"#).await;
    assert!(answer.contains(r#""isError":false"#), "{answer}");
    let text = "n=340282366920938463463374607431768211455&s=%26%3D%2B%25+%C3%A4&a=1&a=0.10&expand%5B%5D=x";
    assert_eq!(seen.lock().pop().unwrap(), ("application/x-www-form-urlencoded".to_owned(), text.to_owned()));

    let (fixture, seen) = service(BodyFormat::Multipart).await;
    call(&fixture, true, &format!(r#"{{"body":{BODY}}}"#), r#""a/b":1"#).await;
    let (kind, text) = seen.lock().pop().unwrap();
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let parts: Vec<&str> = text.split(&format!("--{boundary}")).collect();
    assert_eq!(parts.len(), 7, "{text}");
    assert_eq!(parts[2], "\r\nContent-Disposition: form-data; name=\"s\"\r\n\r\n&=+% ä\r\n");
    assert_eq!(parts[6], "--\r\n");
}

#[tokio::test]
async fn a_body_that_no_form_can_say_is_refused_before_anything_is_sent() {
    let (fixture, seen) = service(BodyFormat::Form).await;
    for body in [r#"{"a":[null]}"#, r#"{"expand[admin]":true}"#] {
        let answer = call(&fixture, true, &format!(r#"{{"body":{body}}}"#), r#""a/b":1"#).await;
        assert!(answer.contains(r#""asp/reason":"invalid_params""#), "{body}: {answer}");
    }
    let answer = call(&fixture, true, "{}", r#""a/b":1"#).await;
    assert!(answer.contains(r#""isError":false"#), "{answer}");
    assert_eq!(*seen.lock(), [(String::new(), String::new())], "no body, and no type of one");
}

#[tokio::test]
async fn a_request_without_a_body_has_no_type_of_one() {
    let kind = "application/vnd.api+json";
    let (fixture, seen) = service_of(ProxyHttp {
        body: "/body".into(),
        headers: [("content-type".to_owned(), kind.to_owned())].into(),
        ..http_mapping("/")
    })
    .await;
    for (arguments, expected) in [("{}", ("", "")), (r#"{"body":{"a":1}}"#, (kind, r#"{"a":1}"#))] {
        let answer = call(&fixture, true, arguments, r#""a/b":1"#).await;
        assert!(answer.contains(r#""isError":false"#), "{answer}");
        let (kind, body) = seen.lock().pop().unwrap();
        assert_eq!((kind.as_str(), body.as_str()), expected, "{arguments}");
    }
}
