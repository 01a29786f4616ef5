use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use async_trait::async_trait;

use super::*;

const PLACE: Place<'static> = Place { tenant: "acme", table: "linked_accounts", row: "bob/github" };
const HOUR: Duration = Duration::from_secs(3_600);

/// Local keys behind a connection that can fail.
struct Distant {
    keys: LocalKeys,
    failure: parking_lot::Mutex<Option<VaultError>>,
    unwrapped: AtomicUsize,
}

impl Distant {
    fn new() -> Arc<Distant> {
        let keys = LocalKeys::in_memory().unwrap();
        Arc::new(Distant { keys, failure: parking_lot::Mutex::default(), unwrapped: AtomicUsize::new(0) })
    }

    fn fail(&self, failure: Option<VaultError>) {
        *self.failure.lock() = failure;
    }

    fn check(&self) -> Result<(), VaultError> {
        self.failure.lock().clone().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl KeyService for Distant {
    fn name(&self) -> &'static str {
        "local"
    }

    fn is_remote(&self) -> bool {
        true
    }

    async fn current_key(&self) -> Result<String, VaultError> {
        self.check()?;
        self.keys.current_key().await
    }

    async fn wrap(&self, data_key: &DataKey, place: &Place<'_>) -> Result<WrappedKey, VaultError> {
        self.check()?;
        self.keys.wrap(data_key, place).await
    }

    async fn unwrap(&self, wrapped: &WrappedKey, place: &Place<'_>) -> Result<DataKey, VaultError> {
        self.unwrapped.fetch_add(1, Ordering::Relaxed);
        self.check()?;
        self.keys.unwrap(wrapped, place).await
    }
}

fn away() -> Option<VaultError> {
    Some(VaultError::Unavailable { service: "local", cause: "gone".into() })
}

fn vault(service: &Arc<Distant>) -> Vault {
    Vault::with_services(
        Arc::clone(service) as Arc<dyn KeyService>,
        Vec::new(),
        CacheBounds::for_outage(HOUR),
    )
}

async fn opens(vault: &Vault, sealed: &[u8]) -> Result<Vec<u8>, VaultError> {
    vault.open(&PLACE, sealed).await.map(|opened| opened.plain.expose().to_vec())
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_survived_for_the_stated_time_and_no_longer() {
    let service = Distant::new();
    let vault = vault(&service);
    let sealed = vault.seal(&PLACE, b"token").await.unwrap();
    service.fail(away());
    tokio::time::advance(HOUR - Duration::from_secs(1)).await;
    assert_eq!(opens(&vault, &sealed).await.unwrap(), b"token");
    tokio::time::advance(Duration::from_secs(1)).await;
    let error = opens(&vault, &sealed).await.unwrap_err();
    assert_eq!(error.to_string(), "key service local is unavailable: gone");
    service.fail(None);
    assert_eq!(opens(&vault, &sealed).await.unwrap(), b"token");
}

#[tokio::test(start_paused = true)]
async fn a_record_in_use_is_confirmed_at_intervals_so_that_any_outage_is_survived() {
    let service = Distant::new();
    let vault = vault(&service);
    let sealed = vault.seal(&PLACE, b"token").await.unwrap();
    for _ in 0..48 {
        tokio::time::advance(Duration::from_secs(150)).await;
        opens(&vault, &sealed).await.unwrap();
    }
    // Two hours later, of which each five minutes asked once.
    assert_eq!(service.unwrapped.load(Ordering::Relaxed), 24);
    service.fail(away());
    tokio::time::advance(HOUR - Duration::from_secs(301)).await;
    assert!(opens(&vault, &sealed).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn during_an_outage_the_service_is_not_asked_each_time() {
    let service = Distant::new();
    let vault = vault(&service);
    let sealed = vault.seal(&PLACE, b"token").await.unwrap();
    service.fail(away());
    tokio::time::advance(Duration::from_secs(600)).await;
    for _ in 0..100 {
        opens(&vault, &sealed).await.unwrap();
    }
    assert_eq!(service.unwrapped.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_ends_the_use_of_cached_keys() {
    let service = Distant::new();
    let vault = vault(&service);
    let sealed = vault.seal(&PLACE, b"token").await.unwrap();
    service.fail(Some(VaultError::Refused { service: "local", cause: "disabled".into() }));
    tokio::time::advance(Duration::from_secs(301)).await;
    assert!(matches!(opens(&vault, &sealed).await, Err(VaultError::Refused { .. })));
    service.fail(away());
    assert!(
        matches!(opens(&vault, &sealed).await, Err(VaultError::Unavailable { .. })),
        "it is not cached any more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cached_key_opens_its_record_at_its_place_only() {
    let service = Distant::new();
    let vault = vault(&service);
    let sealed = vault.seal(&PLACE, b"token").await.unwrap();
    let elsewhere = Place { tenant: "other", ..PLACE };
    assert_eq!(vault.open(&elsewhere, &sealed).await.unwrap_err(), VaultError::NotOpened);
    let mut altered = sealed.clone();
    *altered.last_mut().unwrap() ^= 1;
    assert_eq!(vault.open(&PLACE, &altered).await.unwrap_err(), VaultError::NotOpened);
    service.fail(away());
    let former = vault.reseal(&elsewhere, &sealed, b"x").await;
    assert!(matches!(former, Err(VaultError::Unavailable { .. })), "no data key crosses places");
}

#[tokio::test(start_paused = true)]
async fn a_former_service_opens_and_its_records_are_outdated() {
    let former = Arc::new(LocalKeys::in_memory().unwrap());
    let old = Vault::new(Arc::clone(&former) as Arc<dyn KeyService>).seal(&PLACE, b"token").await.unwrap();
    let current = Arc::new(LocalKeys::in_memory().unwrap());
    let alone = Vault::new(Arc::clone(&current) as Arc<dyn KeyService>);
    assert!(matches!(alone.open(&PLACE, &old).await, Err(VaultError::UnknownKey { .. })));
    let both = Vault::with_services(current, vec![former as Arc<dyn KeyService>], CacheBounds::default());
    let opened = both.open(&PLACE, &old).await.unwrap();
    assert_eq!((opened.plain.expose(), opened.outdated), (&b"token"[..], true));
    let again = both.reseal(&PLACE, &old, opened.plain.expose()).await.unwrap();
    assert!(!alone.open(&PLACE, &again).await.unwrap().outdated);
}

#[tokio::test]
async fn a_plaintext_that_is_too_large_is_refused_before_a_request() {
    let service = Distant::new();
    service.fail(away());
    let sealed = vault(&service).seal(&PLACE, &vec![0; MAX_PLAIN + 1]).await;
    assert!(matches!(sealed, Err(VaultError::TooLarge { .. })));
}

#[tokio::test]
async fn without_a_key_service_the_setting_is_named() {
    let vault = Vault::new(Arc::new(crate::NoKeyService));
    let error = vault.seal(&PLACE, b"token").await.unwrap_err();
    assert!(error.to_string().contains("ASP_VAULT_KMS"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn operations_are_counted_by_outcome() {
    let service = Distant::new();
    let vault = vault(&service);
    let mut registry = Registry::default();
    vault.register(&mut registry);
    let sealed = vault.seal(&PLACE, b"token").await.unwrap();
    opens(&vault, &sealed).await.unwrap();
    opens(&vault, b"x").await.unwrap_err();
    service.fail(away());
    tokio::time::advance(Duration::from_secs(600)).await;
    opens(&vault, &sealed).await.unwrap();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"asp_vault_operations_total{operation="seal",outcome="ok"} 1"#,
        r#"asp_vault_operations_total{operation="open",outcome="ok"} 1"#,
        r#"asp_vault_operations_total{operation="open",outcome="not_opened"} 1"#,
        r#"asp_vault_operations_total{operation="open",outcome="offline"} 1"#,
        r#"asp_vault_key_request_duration_seconds_count{service="local",request="unwrap",outcome="unavailable"} 1"#,
        "asp_vault_cached_keys 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
