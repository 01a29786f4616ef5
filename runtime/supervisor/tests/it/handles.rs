//! Tests of handles: unguessable, usable once, for a short time, by one peer.

use std::time::Duration;

use asp_proto::supervisor::CloseTunnelRequest;
use asp_proto::supervisor::runtime_supervisor_client::RuntimeSupervisorClient;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use serde_json::json;
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::harness::{eventually, open, output, start, start_with, wanted};

#[tokio::test]
async fn a_handle_that_is_guessed_used_or_closed_is_unknown() {
    let stack = start(&[("echo", json!({}))]).await;
    let refused = |result: Result<super::harness::Tunnel, tonic::Status>| {
        let status = result.err().expect("no tunnel");
        (status.code(), status.message().to_owned())
    };
    let guessed = refused(stack.open(&"0".repeat(32)).await);
    assert_eq!(guessed.0, Code::NotFound);

    let id = stack.allocate(wanted("echo", "t")).await.handle.unwrap().tunnel_id;
    assert_eq!(id.len(), 32, "128 bits in hex");
    let mut tunnel = stack.open(&id).await.unwrap();
    assert_eq!(refused(stack.open(&id).await), guessed, "used");
    tunnel.invoke("one", &json!({})).await;
    tunnel.rest().await;
    assert_eq!(refused(stack.open(&id).await), guessed, "ended");

    let closed = stack.allocate(wanted("echo", "t")).await.handle.unwrap().tunnel_id;
    let request = CloseTunnelRequest { tunnel_id: closed.clone(), reason: String::new() };
    stack.client.clone().close_tunnel(request).await.unwrap();
    assert_eq!(refused(stack.open(&closed).await), guessed, "closed");
    assert_eq!(stack.figure("echo@1.0.0", "active").await, 0, "its slot was given back");
}

#[tokio::test]
async fn a_handle_that_nobody_takes_up_expires_and_gives_its_place_back() {
    let stack = start(&[("echo", json!({}))]).await;
    stack.call("echo", "warm", &json!({})).await;
    let handle = stack.allocate(wanted("echo", "t")).await.handle.unwrap();
    assert_eq!(handle.ttl.unwrap().seconds, 10);
    assert_eq!(stack.figure("echo@1.0.0", "active").await, 1);
    eventually("the slot is free", || async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        stack.figure("echo@1.0.0", "active").await == 0
    })
    .await;
    assert_eq!(stack.open(&handle.tunnel_id).await.err().map(|status| status.code()), Some(Code::NotFound));
}

#[tokio::test]
// One stack, and all peers that may not use a handle of it.
#[allow(clippy::too_many_lines)]
async fn a_handle_of_another_peer_is_unknown_and_tls_wants_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(params, authority_key);
    let make = |holder: &str| {
        let key = KeyPair::generate().unwrap();
        let mut leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        leaf.subject_alt_names.push(SanType::URI(format!("spiffe://{holder}").try_into().unwrap()));
        (leaf.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    };
    let (certificate, key) = make("example.org/asp/runtime/python-0");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let certificate = write("cert", &certificate);
    let key = write("key", &key);
    let ca = write("ca", &authority);
    let flags =
        ["--listen", "127.0.0.1:0", "--tls-cert", &certificate, "--tls-key", &key, "--tls-client-ca", &ca];
    let stack = start_with(&[("echo", json!({}))], &flags).await;
    let line = stack.log_line("serving by mutual TLS").await;
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let url = format!("https://{}", line["address"].as_str().unwrap());

    let trust =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&authority)).domain_name("localhost");
    let connect = |tls: ClientTlsConfig| {
        let endpoint = Endpoint::from_shared(url.clone()).unwrap().tls_config(tls).unwrap();
        async move { endpoint.connect().await.map(RuntimeSupervisorClient::new) }
    };
    let one = make("example.org/asp/gateway/one");
    let two = make("example.org/asp/gateway/two");
    let mut one = connect(trust.clone().identity(Identity::from_pem(one.0, one.1))).await.unwrap();
    let mut two = connect(trust.clone().identity(Identity::from_pem(two.0, two.1))).await.unwrap();
    let handle = one.allocate_worker(wanted("echo", "t")).await.unwrap().into_inner().handle.unwrap();
    for foreign in [open(&mut two, &handle.tunnel_id).await, stack.open(&handle.tunnel_id).await] {
        assert_eq!(foreign.err().map(|status| status.code()), Some(Code::NotFound));
    }
    let close = CloseTunnelRequest { tunnel_id: handle.tunnel_id.clone(), reason: String::new() };
    assert_eq!(two.close_tunnel(close).await.unwrap_err().code(), Code::NotFound);
    let mut own = open(&mut one, &handle.tunnel_id).await.unwrap();
    own.invoke("one", &json!({"text": "mine"})).await;
    assert_eq!(output(&own.rest().await).unwrap()["text"], "mine");

    // With TLS 1.3, a client learns of its missing certificate when it first uses the connection.
    let refused = match connect(trust).await {
        Ok(mut nobody) => nobody.allocate_worker(wanted("echo", "t")).await.is_err(),
        Err(_) => true,
    };
    assert!(refused, "no certificate, no service");
    for stolen in [
        "example.org/asp/envoy/edge-0",
        "example.org/asp/runtime/node-0",
        "example.com/asp/gateway/one",
        "example.org/asp/gateway/one/more",
    ] {
        let (certificate, key) = make(stolen);
        let identity = Identity::from_pem(certificate, key);
        let trust = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&authority));
        let refused = match connect(trust.domain_name("localhost").identity(identity)).await {
            Ok(mut nobody) => nobody.allocate_worker(wanted("echo", "t")).await.is_err(),
            Err(_) => true,
        };
        assert!(refused, "{stolen} is no gateway of this runtime's domain");
        stack.log_line("its certificate is not for this").await;
    }
}
