use std::sync::atomic::Ordering;

use asp_store::published_keys::{CARDS, MAX_JWK, MemoryKeys, P256_CARDS};

use super::super::token_keys::tests::World;
use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);
const ES256: CardAlgorithm = CardAlgorithm::Es256;

fn sealer(byte: u8) -> Arc<Sealer> {
    Arc::new(Sealer::new(&[byte; 32], None).unwrap())
}

/// A gateway on this store.
fn gateway(world: &Arc<World>) -> CardKeys {
    CardKeys::new(world.clone(), sealer(7))
}

async fn algorithms(keys: &CardKeys) -> Vec<CardAlgorithm> {
    keys.signers().await.iter().map(|key| key.public().algorithm()).collect()
}

/// Ids of the keys of an algorithm that sign.
async fn signing(keys: &CardKeys, algorithm: CardAlgorithm) -> Vec<String> {
    let signers = keys.signers().await;
    let signers = signers.iter().filter(|key| key.public().algorithm() == algorithm);
    signers.map(|key| key.public().kid().to_owned()).collect()
}

/// Ids of the published keys of an algorithm.
async fn published(keys: &CardKeys, algorithm: CardAlgorithm) -> Vec<String> {
    let set = keys.jwks().await;
    let name = match algorithm {
        CardAlgorithm::Es256 => "ES256",
        CardAlgorithm::EdDsa => "EdDSA",
    };
    let keys = set["keys"].as_array().unwrap().iter().filter(|key| key["alg"] == name);
    keys.map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn one_key_of_all_gateways_signs_for_ninety_days_and_is_published_for_ninety_more() {
    for algorithm in CardAlgorithm::ALL {
        let world = World::new();
        let (one, other) = (gateway(&world), gateway(&world));
        let first = signing(&one, algorithm).await;
        assert_eq!(
            (first.len(), &signing(&other, algorithm).await),
            (1, &first),
            "the same at every gateway, and after a restart"
        );
        world.pass(82 * DAY).await;
        assert_eq!(signing(&one, algorithm).await, first);
        world.pass(2 * DAY).await;
        let both = signing(&one, algorithm).await;
        assert_eq!((both.len(), &both[..1]), (2, &first[..]), "the successor signs too");
        assert_eq!(signing(&other, algorithm).await, both);
        world.pass(7 * DAY).await;
        assert_eq!(signing(&one, algorithm).await, both[1..], "91 days");
        assert_eq!(published(&other, algorithm).await, both);
        world.pass(88 * DAY).await;
        assert!(published(&one, algorithm).await.contains(&first[0]), "179 days");
        world.pass(2 * DAY).await;
        assert!(!published(&one, algorithm).await.contains(&first[0]), "181 days");
    }
}

#[tokio::test(start_paused = true)]
async fn a_card_is_signed_with_both_algorithms_and_with_four_keys_during_a_rotation() {
    let world = World::new();
    let keys = gateway(&world);
    let eddsa = CardAlgorithm::EdDsa;
    assert_eq!(algorithms(&keys).await, [ES256, eddsa]);
    world.pass(84 * DAY).await;
    assert_eq!(algorithms(&keys).await, [ES256, ES256, eddsa, eddsa]);
    // A key that is stored under the other algorithm's owner is none.
    world.rows.lock().retain(|(owner, _), _| *owner == P256_CARDS.0);
    let moved: Vec<_> = std::mem::take(&mut *world.rows.lock()).into_iter().collect();
    let moved = moved.into_iter().map(|((_, kid), row)| ((CARDS[1].0, kid), row));
    world.rows.lock().extend(moved);
    world.pass(FRESH).await;
    assert_eq!(algorithms(&keys).await, [ES256, eddsa], "new ones");
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
    let own = signing(&stranger, ES256).await;
    assert_ne!(own[0], signers[0].public().kid());
    assert_eq!(published(&stranger, ES256).await.len(), 2);
    // A row that was copied to another key opens nothing.
    let mut copied = CardSigningKey::generate(ES256).unwrap().public().jwk();
    copied[SEALED] = jwk[SEALED].clone();
    let copied = PublicJwk { kid: copied["kid"].as_str().unwrap().into(), jwk: copied.to_string() };
    world.rows.lock().clear();
    world.publish(P256_CARDS, &copied, SIGNS + REST).await.unwrap();
    world.pass(FRESH).await;
    assert!(!signing(&keys, ES256).await.contains(&copied.kid));
}

#[tokio::test(start_paused = true)]
async fn without_the_store_known_keys_go_on_and_a_store_without_room_leaves_cards_unsigned() {
    let world = World::new();
    let keys = gateway(&world);
    world.fail(true);
    assert_eq!(signing(&keys, ES256).await, Vec::<String>::new());
    world.fail(false);
    assert_eq!(signing(&keys, ES256).await, Vec::<String>::new(), "the store is asked once a second");
    world.pass(FRESH).await;
    let first = signing(&keys, ES256).await;
    assert_eq!(first.len(), 1);
    world.fail(true);
    world.pass(30 * DAY).await;
    assert_eq!((signing(&keys, ES256).await, published(&keys, ES256).await), (first.clone(), first.clone()));
    world.pass(151 * DAY).await;
    assert_eq!(
        (signing(&keys, ES256).await.len(), published(&keys, ES256).await.len()),
        (0, 0),
        "it has expired"
    );

    world.fail(false);
    world.is_full.store(true, Ordering::Relaxed);
    world.pass(FRESH).await;
    assert_eq!(signing(&keys, ES256).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn gateways_that_start_together_agree_on_a_key() {
    let store = Arc::new(MemoryKeys::default());
    let gateways: Vec<CardKeys> = (0..8).map(|_| CardKeys::new(store.clone(), sealer(7))).collect();
    // Each adds its key before it sees another one's.
    for gateway in &gateways[..3] {
        gateway.add(ES256).await.unwrap();
    }
    let agreed = signing(&gateways[0], ES256).await;
    assert_eq!(agreed.len(), 1);
    for gateway in &gateways {
        assert_eq!(signing(gateway, ES256).await, agreed);
        assert_eq!(published(gateway, ES256).await.len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn keys_of_cards_and_of_tokens_are_published_apart() {
    let world = World::new();
    let cards = gateway(&world);
    let first = signing(&cards, ES256).await;
    let tokens = world.start().await;
    let set = tokens.jwks().await;
    let kids: Vec<&str> =
        set["keys"].as_array().unwrap().iter().filter_map(|key| key["kid"].as_str()).collect();
    assert!(kids.len() == 1 && !kids.contains(&first[0].as_str()), "{kids:?}");
    assert_eq!(published(&cards, ES256).await, first);
    assert!(!CARDS.contains(&tokens.owner()));
}
