//! AWS KMS, as moto serves its API.

use std::sync::Arc;

use asp_e2e::kms::{ACCESS_KEY, Kms, SECRET_KEY};
use asp_vault::aws::{AwsCredentials, AwsKms, KeyArn};
use asp_vault::local::LocalKeys;
use asp_vault::{DataKey, KeyService, Vault, VaultError, WrappedKey, key_id_of};
use rustix::process::Signal;

use crate::support::{ELSEWHERE, PLACE, open, vault};

fn service(kms: &Kms, arn: &str) -> AwsKms {
    let credentials = AwsCredentials {
        access_key: ACCESS_KEY.into(),
        secret_key: SECRET_KEY.into(),
        session_token: Some("a-token".into()),
    };
    AwsKms::open(KeyArn::parse(arn).unwrap(), Some(&kms.endpoint()), credentials).unwrap()
}

#[tokio::test]
async fn a_record_opens_at_its_place_in_every_process() {
    let kms = Kms::start().await.unwrap();
    let arn = kms.create_key().await.unwrap();
    let here = vault(service(&kms, &arn), Vec::new());
    let there = vault(service(&kms, &arn), Vec::new());
    here.check().await.unwrap();
    let sealed = here.seal(&PLACE, b"token").await.unwrap();
    assert_eq!(key_id_of(&sealed), Some(format!("aws:{arn}")));
    assert_eq!(open(&there, &sealed).await.unwrap(), (b"token".to_vec(), false));
    assert_eq!(there.open(&ELSEWHERE, &sealed).await.unwrap_err(), VaultError::NotOpened);
}

#[tokio::test]
async fn the_service_itself_refuses_a_data_key_of_another_place() {
    let kms = Kms::start().await.unwrap();
    let service = service(&kms, &kms.create_key().await.unwrap());
    let data_key = DataKey::random().unwrap();
    let wrapped = service.wrap(&data_key, &PLACE).await.unwrap();
    assert_eq!(service.unwrap(&wrapped, &PLACE).await.unwrap().expose(), data_key.expose());
    assert_eq!(service.unwrap(&wrapped, &ELSEWHERE).await.unwrap_err(), VaultError::NotOpened);
    let stranger = WrappedKey { key_id: kms.create_key().await.unwrap(), ..wrapped };
    assert!(matches!(service.unwrap(&stranger, &PLACE).await, Err(VaultError::UnknownKey { .. })));
}

#[tokio::test]
async fn a_key_that_is_not_there_is_named() {
    let kms = Kms::start().await.unwrap();
    let arn = kms.create_key().await.unwrap();
    let missing = arn.replace("key/", "key/00000000-");
    let error = vault(service(&kms, &missing), Vec::new()).seal(&PLACE, b"token").await.unwrap_err();
    assert!(matches!(&error, VaultError::UnknownKey { key_id } if key_id.contains(&missing)), "{error}");
}

#[tokio::test]
async fn records_move_from_the_local_file_to_the_service_as_they_are_used() {
    let kms = Kms::start().await.unwrap();
    let arn = kms.create_key().await.unwrap();
    let local: Arc<dyn KeyService> = Arc::new(LocalKeys::in_memory().unwrap());
    let old = Vault::new(Arc::clone(&local)).seal(&PLACE, b"token").await.unwrap();
    let moving = vault(service(&kms, &arn), vec![local]);
    assert_eq!(open(&moving, &old).await.unwrap(), (b"token".to_vec(), true));
    let new = moving.reseal(&PLACE, &old, b"token").await.unwrap();
    let alone = vault(service(&kms, &arn), Vec::new());
    assert_eq!(open(&alone, &new).await.unwrap(), (b"token".to_vec(), false));
    assert!(matches!(open(&alone, &old).await, Err(VaultError::UnknownKey { .. })));
}

#[tokio::test]
async fn records_used_recently_open_without_the_service_and_others_do_not() {
    let mut kms = Kms::start().await.unwrap();
    let arn = kms.create_key().await.unwrap();
    let used = vault(service(&kms, &arn), Vec::new());
    let unused = vault(service(&kms, &arn), Vec::new());
    let sealed = used.seal(&PLACE, b"token").await.unwrap();
    let other = unused.seal(&PLACE, b"token").await.unwrap();
    kms.process.signal(Signal::KILL).unwrap();
    kms.process.wait(asp_e2e::wait::START).await.unwrap();
    assert_eq!(open(&used, &sealed).await.unwrap(), (b"token".to_vec(), false));
    let renewed = used.reseal(&PLACE, &sealed, b"renewed").await.unwrap();
    assert_eq!(open(&used, &renewed).await.unwrap(), (b"renewed".to_vec(), false));
    for failed in [open(&used, &other).await.map(drop), used.seal(&PLACE, b"x").await.map(drop)] {
        let error = failed.unwrap_err();
        assert!(matches!(error, VaultError::Unavailable { service: "aws", .. }), "{error}");
        assert!(!error.to_string().contains(SECRET_KEY), "{error}");
    }
}
