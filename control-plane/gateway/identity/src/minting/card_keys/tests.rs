use std::sync::atomic::Ordering;

use asp_store::published_keys::{MAX_JWK, MemoryKeys};

use super::super::token_keys::tests::World;
use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn sealer(byte: u8) -> Arc<Sealer> {
    Arc::new(Sealer::new(&[byte; 32], None).unwrap())
}

/// A gateway on this store.
fn gateway(world: &Arc<World>) -> CardKeys {
    CardKeys::new(world.clone(), sealer(7))
}

async fn signing(keys: &CardKeys) -> Vec<String> {
    keys.signers().await.iter().map(|key| key.public().kid().to_owned()).collect()
}

async fn published(keys: &CardKeys) -> Vec<String> {
    let set = keys.jwks().await;
    set["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn one_key_of_all_gateways_signs_for_ninety_days_and_is_published_for_ninety_more() {
    let world = World::new();
    let (one, other) = (gateway(&world), gateway(&world));
    let first = signing(&one).await;
    assert_eq!(
        (first.len(), &signing(&other).await),
        (1, &first),
        "the same at every gateway, and after a restart"
    );
    world.pass(82 * DAY).await;
    assert_eq!(signing(&one).await, first);
    world.pass(2 * DAY).await;
    let both = signing(&one).await;
    assert_eq!((both.len(), &both[..1]), (2, &first[..]), "the successor signs too");
    assert_eq!(signing(&other).await, both);
    world.pass(7 * DAY).await;
    assert_eq!(signing(&one).await, both[1..], "91 days");
    assert_eq!(published(&other).await, both);
    world.pass(88 * DAY).await;
    assert!(published(&one).await.contains(&first[0]), "179 days");
    world.pass(2 * DAY).await;
    assert!(!published(&one).await.contains(&first[0]), "181 days");
}

#[tokio::test(start_paused = true)]
async fn the_store_has_no_private_half_that_another_seal_key_opens() {
    let world = World::new();
    let keys = gateway(&world);
    let signers = keys.signers().await;
    let row = world.rows.lock().values().next().unwrap().0.clone();
    assert!(row.len() <= MAX_JWK, "{}", row.len());
    let jwk: Value = serde_json::from_str(&row).unwrap();
    assert_eq!(jwk.get("d"), None);
    let public = keys.jwks().await["keys"][0].clone();
    assert_eq!(public, signers[0].public().jwk(), "what is published has no sealed half");

    // A gateway with another seal key publishes the key and signs with one of its own.
    let stranger = CardKeys::new(world.clone(), sealer(8));
    let own = signing(&stranger).await;
    assert_ne!(own[0], signers[0].public().kid());
    assert_eq!(published(&stranger).await.len(), 2);
    // A row that was copied to another key opens nothing.
    let mut copied = SigningKey::generate().unwrap().public().jwk();
    copied[SEALED] = jwk[SEALED].clone();
    let copied = PublicJwk { kid: copied["kid"].as_str().unwrap().into(), jwk: copied.to_string() };
    world.rows.lock().clear();
    world.publish(CARDS, &copied, SIGNS + REST).await.unwrap();
    world.pass(FRESH).await;
    assert!(!signing(&keys).await.contains(&copied.kid));
}

#[tokio::test(start_paused = true)]
async fn without_the_store_known_keys_go_on_and_a_store_without_room_leaves_cards_unsigned() {
    let world = World::new();
    let keys = gateway(&world);
    world.fail(true);
    assert_eq!(signing(&keys).await, Vec::<String>::new());
    world.fail(false);
    assert_eq!(signing(&keys).await, Vec::<String>::new(), "the store is asked once a second");
    world.pass(FRESH).await;
    let first = signing(&keys).await;
    assert_eq!(first.len(), 1);
    world.fail(true);
    world.pass(30 * DAY).await;
    assert_eq!((signing(&keys).await, published(&keys).await), (first.clone(), first.clone()));
    world.pass(151 * DAY).await;
    assert_eq!((signing(&keys).await.len(), published(&keys).await.len()), (0, 0), "it has expired");

    world.fail(false);
    world.is_full.store(true, Ordering::Relaxed);
    world.pass(FRESH).await;
    assert_eq!(signing(&keys).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn gateways_that_start_together_agree_on_a_key() {
    let store = Arc::new(MemoryKeys::default());
    let gateways: Vec<CardKeys> = (0..8).map(|_| CardKeys::new(store.clone(), sealer(7))).collect();
    // Each adds its key before it sees another one's.
    for gateway in &gateways[..3] {
        gateway.add().await.unwrap();
    }
    let agreed = signing(&gateways[0]).await;
    assert_eq!(agreed.len(), 1);
    for gateway in &gateways {
        assert_eq!(signing(gateway).await, agreed);
        assert_eq!(published(gateway).await.len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn keys_of_cards_and_of_tokens_are_published_apart() {
    let world = World::new();
    let cards = gateway(&world);
    let first = signing(&cards).await;
    let tokens = world.start().await;
    let set = tokens.jwks().await;
    let kids: Vec<&str> =
        set["keys"].as_array().unwrap().iter().filter_map(|key| key["kid"].as_str()).collect();
    assert!(kids.len() == 1 && !kids.contains(&first[0].as_str()), "{kids:?}");
    assert_eq!(published(&cards).await, first);
    assert_ne!(tokens.owner(), CARDS);
}
