//! Tests of handles: unguessable, usable for one tunnel, by one peer, on its stream.

use asp_proto::supervisor::runtime_supervisor_client::RuntimeSupervisorClient;
use asp_proto::supervisor::tunnel_event::Type;
use asp_proto::supervisor::{CloseTunnelRequest, HealthRequest};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use serde_json::json;
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::harness::{eventually, start, start_with, wanted};
use super::shared::{Shared, code};

/// Sends a call under a handle that the runtime refuses, and returns the code of its answer.
async fn refused(shared: &mut Shared, id: &str) -> Code {
    shared.invoke(id, "refused", &json!({})).await;
    loop {
        // A tunnel that has ended may have reported that as well, without a code.
        if let Some(code) = code(&shared.until_event(id, Type::TunnelClosed).await) {
            return code;
        }
    }
}

#[tokio::test]
async fn a_handle_that_is_guessed_or_whose_tunnel_has_ended_is_unknown() {
    let stack = start(&[("echo", json!({}))]).await;
    let mut shared = Shared::open(&stack).await;
    assert_eq!(refused(&mut shared, &"0".repeat(32)).await, Code::NotFound, "guessed");

    let ended = shared.begin("+1", "echo", "one", &json!({})).await;
    assert_eq!(ended.len(), 32, "128 bits in hex");
    shared.until_event(&ended, Type::TunnelClosed).await;
    assert_eq!(refused(&mut shared, &ended).await, Code::NotFound, "ended");

    shared.put("+2", &wanted("echo", "t")).await;
    let closed = shared.allocated("+2").await;
    shared.close(&closed).await;
    assert_eq!(refused(&mut shared, &closed).await, Code::NotFound, "closed");
    assert_eq!(stack.figure("echo@1.0.0", "active").await, 0, "its slot was given back");
}

#[tokio::test]
async fn a_slot_that_nobody_uses_is_given_back_with_its_stream() {
    let stack = start(&[("echo", json!({}))]).await;
    stack.call("echo", "warm", &json!({})).await;
    let mut shared = Shared::open(&stack).await;
    shared.put("+1", &wanted("echo", "t")).await;
    shared.allocated("+1").await;
    assert_eq!(stack.figure("echo@1.0.0", "active").await, 1);
    drop(shared);
    eventually("the slot is free", || async { stack.figure("echo@1.0.0", "active").await == 0 }).await;
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
    let one = connect(trust.clone().identity(Identity::from_pem(one.0, one.1))).await.unwrap();
    let mut two = connect(trust.clone().identity(Identity::from_pem(two.0, two.1))).await.unwrap();
    let mut own = Shared::over(one).await;
    own.put("+1", &wanted("echo", "t")).await;
    let handle = own.allocated("+1").await;
    for mut foreign in [Shared::over(two.clone()).await, Shared::open(&stack).await] {
        assert_eq!(refused(&mut foreign, &handle).await, Code::NotFound);
    }
    let close = CloseTunnelRequest { tunnel_id: handle.clone(), reason: String::new() };
    assert_eq!(two.close_tunnel(close).await.unwrap_err().code(), Code::NotFound);
    own.invoke(&handle, "one", &json!({"text": "mine"})).await;
    assert_eq!(own.output(&handle).await["text"], "mine");

    // With TLS 1.3, a client learns of its missing certificate when it first uses the connection.
    let refused = match connect(trust).await {
        Ok(mut nobody) => nobody.health(HealthRequest {}).await.is_err(),
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
            Ok(mut nobody) => nobody.health(HealthRequest {}).await.is_err(),
            Err(_) => true,
        };
        assert!(refused, "{stolen} is no gateway of this runtime's domain");
        stack.log_line("its certificate is not for this").await;
    }
}
