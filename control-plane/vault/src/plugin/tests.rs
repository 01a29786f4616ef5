use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use asp_proto::kms::DecryptResponse;
use asp_proto::kms::key_management_service_server::{KeyManagementService, KeyManagementServiceServer};
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Request;
use tonic::transport::Server;

use super::*;
use crate::cache::CacheBounds;
use crate::vault::Vault;

const PLACE: Place<'static> = Place { tenant: "acme", table: "linked_accounts", row: "bob/github" };
const ANNOTATION: &str = "generation.kms.example";

/// A plugin that serves the official API; its cipher is of no use.
#[derive(Default)]
struct Behavior {
    key: Mutex<String>,
    is_ill: AtomicBool,
    asked: AtomicUsize,
}

struct TestPlugin(Arc<Behavior>);

#[tonic::async_trait]
impl KeyManagementService for TestPlugin {
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        let healthz = if self.0.is_ill.load(Ordering::Relaxed) { "no HSM" } else { "ok" };
        let key_id = self.0.key.lock().clone();
        Ok(Response::new(StatusResponse { version: "v2".into(), healthz: healthz.into(), key_id }))
    }

    async fn encrypt(&self, request: Request<EncryptRequest>) -> Result<Response<EncryptResponse>, Status> {
        let EncryptRequest { plaintext, uid } = request.into_inner();
        assert_eq!((plaintext.len(), uid.len()), (32, 2 * UID_BYTES));
        let key_id = self.0.key.lock().clone();
        let ciphertext = plaintext.iter().map(|byte| byte ^ 0x5a).collect();
        let annotations = BTreeMap::from([(ANNOTATION.to_owned(), key_id.clone().into_bytes())]);
        Ok(Response::new(EncryptResponse { ciphertext, key_id, annotations }))
    }

    async fn decrypt(&self, request: Request<DecryptRequest>) -> Result<Response<DecryptResponse>, Status> {
        let DecryptRequest { ciphertext, key_id, annotations, .. } = request.into_inner();
        if annotations.get(ANNOTATION).map(Vec::as_slice) != Some(key_id.as_bytes()) {
            return Err(Status::invalid_argument("annotations of another ciphertext"));
        }
        if key_id == "gone" {
            return Err(Status::not_found("hunter2"));
        }
        let plaintext = ciphertext.iter().map(|byte| byte ^ 0x5a).collect();
        Ok(Response::new(DecryptResponse { plaintext }))
    }
}

/// A running plugin.
struct Running {
    behavior: Arc<Behavior>,
    socket: PathBuf,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Running {
    fn start() -> Running {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("kms.sock");
        let incoming = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
        let behavior = Arc::new(Behavior { key: Mutex::new("k1".into()), ..Behavior::default() });
        let service = KeyManagementServiceServer::new(TestPlugin(Arc::clone(&behavior)));
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(async move {
            let stopped = async move {
                let _ = stopped.await;
            };
            let serving = Server::builder().add_service(service);
            serving.serve_with_incoming_shutdown(incoming, stopped).await.unwrap();
        });
        Running { behavior, socket, stop, server, _dir: dir }
    }

    fn service(&self) -> KmsPlugin {
        KmsPlugin::open(&self.socket).unwrap()
    }

    fn vault(&self) -> Vault {
        // Each opening asks the plugin.
        let bounds = CacheBounds { keys: 10, fresh: Duration::ZERO, usable: Duration::from_secs(3_600) };
        Vault::with_services(Arc::new(self.service()), Vec::new(), bounds)
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.server.await.unwrap();
    }
}

#[tokio::test]
async fn a_record_opens_at_its_place_with_the_annotations_of_the_plugin() {
    let running = Running::start();
    let vault = running.vault();
    vault.check().await.unwrap();
    let sealed = vault.seal(&PLACE, b"token").await.unwrap();
    assert_eq!(crate::key_id_of(&sealed).as_deref(), Some("plugin:k1"));
    // Another process, which has nothing in memory.
    let opened = running.vault().open(&PLACE, &sealed).await.unwrap();
    assert_eq!((opened.plain.expose(), opened.outdated), (&b"token"[..], false));
    let elsewhere = Place { tenant: "other", ..PLACE };
    assert_eq!(running.vault().open(&elsewhere, &sealed).await.unwrap_err(), VaultError::NotOpened);
    running.stop().await;
}

#[tokio::test]
async fn a_rotation_of_the_plugin_makes_records_outdated() {
    let running = Running::start();
    let vault = running.vault();
    let old = vault.seal(&PLACE, b"token").await.unwrap();
    "k2".clone_into(&mut running.behavior.key.lock());
    let new = vault.seal(&PLACE, b"token").await.unwrap();
    assert!(vault.open(&PLACE, &old).await.unwrap().outdated);
    assert!(!vault.open(&PLACE, &new).await.unwrap().outdated);
    running.stop().await;
}

#[tokio::test]
async fn the_current_key_is_not_asked_for_with_each_record() {
    let running = Running::start();
    let service = running.service();
    for _ in 0..10 {
        assert_eq!(service.current_key().await.unwrap(), "k1");
    }
    assert_eq!(running.behavior.asked.load(Ordering::Relaxed), 1);
    running.stop().await;
}

#[tokio::test]
async fn a_plugin_that_is_not_well_has_no_current_key() {
    let running = Running::start();
    running.behavior.is_ill.store(true, Ordering::Relaxed);
    let error = running.service().current_key().await.unwrap_err();
    assert!(matches!(error, VaultError::Unavailable { .. }), "{error}");
    running.stop().await;
}

#[tokio::test]
async fn records_used_recently_open_without_the_plugin_and_others_do_not() {
    let running = Running::start();
    let used = running.vault();
    let unused = running.vault();
    let sealed = used.seal(&PLACE, b"token").await.unwrap();
    let other = unused.seal(&PLACE, b"token").await.unwrap();
    running.stop().await;
    assert_eq!(used.open(&PLACE, &sealed).await.unwrap().plain.expose(), b"token");
    let renewed = used.reseal(&PLACE, &sealed, b"renewed").await.unwrap();
    assert_eq!(used.open(&PLACE, &renewed).await.unwrap().plain.expose(), b"renewed");
    for error in [used.open(&PLACE, &other).await.unwrap_err(), used.seal(&PLACE, b"x").await.unwrap_err()] {
        assert!(matches!(error, VaultError::Unavailable { service: "plugin", .. }), "{error}");
    }
}

#[tokio::test]
async fn refusals_of_the_plugin_are_told_apart_and_not_repeated() {
    let running = Running::start();
    let service = running.service();
    let mut wrapped = service.wrap(&DataKey::random().unwrap(), &PLACE).await.unwrap();
    wrapped.key_id = "k9".into();
    assert_eq!(service.unwrap(&wrapped, &PLACE).await.unwrap_err(), VaultError::NotOpened);
    "gone".clone_into(&mut running.behavior.key.lock());
    let gone = service.wrap(&DataKey::random().unwrap(), &PLACE).await.unwrap();
    let error = service.unwrap(&gone, &PLACE).await.unwrap_err();
    assert!(matches!(&error, VaultError::UnknownKey { key_id } if key_id == "plugin:gone"), "{error}");
    let malformed = WrappedKey { key_id: "k1".into(), bytes: vec![0xff; 9] };
    assert_eq!(service.unwrap(&malformed, &PLACE).await.unwrap_err(), VaultError::NotOpened);
    running.stop().await;
}

#[test]
fn a_status_is_checked_before_its_key_is_used() {
    let status = |version: &str, healthz: &str, key_id: &str| StatusResponse {
        version: version.into(),
        healthz: healthz.into(),
        key_id: key_id.into(),
    };
    assert_eq!(checked(status("v2", "ok", "k")).unwrap(), "k");
    assert_eq!(checked(status("v2beta1", "ok", "k")).unwrap(), "k");
    let long = "k".repeat(MAX_FIELD + 1);
    for (version, healthz, key_id) in
        [("v1", "ok", "k"), ("", "ok", "k"), ("v2", "", "k"), ("v2", "ok", ""), ("v2", "ok", long.as_str())]
    {
        assert!(checked(status(version, healthz, key_id)).is_err(), "{version} {healthz}");
    }
}
