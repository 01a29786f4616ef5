use std::collections::BTreeMap;

use async_trait::async_trait;
use tokio::time::Instant;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// Owner and `kid`.
pub(in crate::minting) type Id = ([u8; 16], String);
/// The JWK, and the end of its publication.
pub(in crate::minting) type Row = (String, u64);

/// A store and a shared clock that a test advances.
#[derive(Default)]
pub(in crate::minting) struct World {
    now_ms: AtomicU64,
    pub(in crate::minting) rows: Mutex<BTreeMap<Id, Row>>,
    fails: AtomicBool,
    /// Whether the store has no capacity for another key.
    pub(in crate::minting) is_full: AtomicBool,
    /// Whether the store performs writes but reports failure.
    forgets_to_say: AtomicBool,
}

impl World {
    pub(in crate::minting) fn new() -> Arc<World> {
        let world = World::default();
        world.now_ms.store(1_700_000_000_000, Ordering::Relaxed);
        Arc::new(world)
    }

    fn clock(self: &Arc<World>) -> Clock {
        let world = self.clone();
        Arc::new(move || world.now())
    }

    fn now(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    pub(in crate::minting) async fn pass(&self, duration: Duration) {
        self.now_ms.fetch_add(milliseconds(duration), Ordering::Relaxed);
        tokio::time::advance(duration).await;
    }

    pub(in crate::minting) async fn start(self: &Arc<World>) -> TokenKeys {
        TokenKeys::start(self.clone(), self.clock()).await.unwrap()
    }

    fn given(self: &Arc<World>, current: SigningKey, previous: Option<PublicKey>) -> TokenKeys {
        TokenKeys::fixed((current, previous), self.clone(), self.clock())
    }

    fn answers(&self) -> Result<(), PublishError> {
        match self.fails.load(Ordering::Relaxed) {
            true => Err(PublishError::Unavailable("no answer".into())),
            false => Ok(()),
        }
    }

    pub(in crate::minting) fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    /// Returns the remaining publication of the key.
    fn left(&self, kid: &str) -> Duration {
        let rows = self.rows.lock();
        let ends = rows.iter().filter(|((_, of), _)| of == kid).map(|(_, (_, until_ms))| *until_ms);
        Duration::from_millis(ends.max().unwrap_or_default().saturating_sub(self.now()))
    }
}

#[async_trait]
impl PublishedKeys for World {
    async fn publish(&self, owner: OwnerId, key: &PublicJwk, lasts: Duration) -> Result<(), PublishError> {
        self.answers()?;
        let until_ms = self.now() + milliseconds(lasts);
        let mut rows = self.rows.lock();
        if self.is_full.load(Ordering::Relaxed) && !rows.contains_key(&(owner.0, key.kid.clone())) {
            return Err(PublishError::Full);
        }
        let row = rows.entry((owner.0, key.kid.clone())).or_insert((key.jwk.clone(), 0));
        row.1 = row.1.max(until_ms);
        match self.forgets_to_say.load(Ordering::Relaxed) {
            true => Err(PublishError::Unavailable("too late".into())),
            false => Ok(()),
        }
    }

    async fn published(&self) -> Result<Vec<PublishedKey>, PublishError> {
        self.answers()?;
        let published = |((owner, kid), (jwk, until_ms)): (&Id, &Row)| PublishedKey {
            owner: OwnerId(*owner),
            key: PublicJwk { kid: kid.clone(), jwk: jwk.clone() },
            left: Duration::from_millis(until_ms.saturating_sub(self.now())),
        };
        let rows = self.rows.lock();
        Ok(rows.iter().map(published).filter(|one| !one.left.is_zero()).collect())
    }

    async fn withdraw(&self, owner: OwnerId, rest: Duration) -> Result<(), PublishError> {
        self.answers()?;
        let until_ms = self.now() + milliseconds(rest);
        for (_, row) in self.rows.lock().iter_mut().filter(|((of, _), _)| *of == owner.0) {
            row.1 = row.1.min(until_ms);
        }
        Ok(())
    }
}

fn signing(keys: &TokenKeys) -> Option<String> {
    keys.signer().map(|key| key.public().kid().to_owned())
}

async fn told(keys: &TokenKeys) -> Vec<String> {
    let set = keys.jwks().await;
    set["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

/// Times at which another gateway served a key, and at which it signed: from, to.
#[derive(Default)]
struct Life {
    told: Option<(Duration, Duration)>,
    signed: Option<(Duration, Duration)>,
}

fn extend(span: &mut Option<(Duration, Duration)>, at: Duration) {
    let from = span.map_or(at, |(from, _)| from);
    *span = Some((from, at));
}

#[tokio::test(start_paused = true)]
async fn a_key_signs_for_a_day_and_is_told_everywhere_an_hour_before_and_until_its_last_token_has_ended() {
    let world = World::new();
    let keys = world.start().await;
    let other = world.given(SigningKey::generate().unwrap(), None);
    let mut lives: BTreeMap<String, Life> = BTreeMap::new();
    let mut at = Duration::ZERO;
    while at < 76 * HOUR {
        keys.keep().await;
        let kid = signing(&keys).expect("it always signs");
        assert!(world.left(&kid) > MAX_LIFE, "what it signs ends before its publication");
        extend(&mut lives.entry(kid.clone()).or_default().signed, at);
        let set = told(&other).await;
        assert!(set.contains(&kid), "every gateway tells it");
        assert!(told(&keys).await.contains(&kid));
        for kid in set {
            extend(&mut lives.entry(kid).or_default().told, at);
        }
        assert!(world.rows.lock().len() <= 5, "bounded");
        world.rows.lock().retain(|_, (_, until_ms)| *until_ms > world.now());
        world.pass(KEEP_EVERY).await;
        at += KEEP_EVERY;
    }
    let mut signed: Vec<&Life> = lives.values().filter(|life| life.signed.is_some()).collect();
    signed.sort_by_key(|life| life.signed);
    assert_eq!(signed.len(), 4);
    for (n, life) in signed.into_iter().enumerate() {
        let ((from, to), (told_from, told_to)) = (life.signed.unwrap(), life.told.unwrap());
        let day = ROTATE * u32::try_from(n).unwrap();
        assert!(from >= day && from <= day + KEEP_EVERY, "{n} signs from {from:?}");
        assert!(n == 0 || from >= told_from + AHEAD - KEEP_EVERY, "{n} is told from {told_from:?}");
        if to + KEEP_EVERY < at {
            assert!(told_to >= to + REST - KEEP_EVERY, "{n} is told until {told_to:?}");
            assert!(told_to <= to + PUBLISH_FOR, "{n} is told until {told_to:?}, and nobody needs it");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_store_a_key_signs_on_as_long_as_it_is_published_and_none_signs_unpublished() {
    let world = World::new();
    let keys = world.start().await;
    let first = signing(&keys).unwrap();
    while world.now() < 1_700_000_000_000 + milliseconds(ROTATE - AHEAD - HOUR / 2) {
        keys.keep().await;
        world.pass(KEEP_EVERY).await;
    }
    world.fail(true);
    let mut went_on = Duration::ZERO;
    while let Some(kid) = signing(&keys) {
        assert_eq!(kid, first, "the next one cannot be published");
        assert!(world.left(&kid) >= REST, "what it signs ends before its publication");
        keys.keep().await;
        world.pass(KEEP_EVERY).await;
        went_on += KEEP_EVERY;
    }
    assert!(went_on >= HOUR && went_on <= PUBLISH_FOR - REST + KEEP_EVERY, "{went_on:?}");
    // The store is back: the same key, which services know, signs at once, and the next one an hour later.
    world.fail(false);
    keys.keep().await;
    assert_eq!(signing(&keys), Some(first.clone()));
    world.pass(AHEAD - KEEP_EVERY).await;
    keys.keep().await;
    assert_eq!(signing(&keys), Some(first.clone()));
    world.pass(KEEP_EVERY).await;
    assert_ne!(signing(&keys), Some(first));
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_publication_is_over_is_replaced_by_one_that_all_gateways_tell_before_it_signs() {
    let world = World::new();
    let keys = world.start().await;
    let first = signing(&keys).unwrap();
    // As after the machine slept.
    world.pass(30 * HOUR).await;
    assert_eq!(signing(&keys), None);
    keys.keep().await;
    assert_eq!(signing(&keys), None, "others do not tell it yet");
    world.pass(SEEN).await;
    let second = signing(&keys).unwrap();
    assert_ne!(second, first);
    assert_eq!(told(&keys).await, [second]);
}

/// A failover to a database that has lost the rows, or whose clock is hours ahead, so that all of them are over there.
#[tokio::test(start_paused = true)]
async fn keys_that_the_store_has_lost_are_published_again_at_once() {
    let world = World::new();
    let made = world.start().await;
    let given = world.given(SigningKey::generate().unwrap(), None);
    given.keep().await;
    let both = [signing(&made).unwrap(), signing(&given).unwrap()];
    // The previous key signs no more, and its last tokens are still in use.
    while signing(&made).as_ref() == Some(&both[0]) {
        world.pass(KEEP_EVERY).await;
        made.keep().await;
        given.keep().await;
    }
    world.rows.lock().clear();
    made.keep().await;
    given.keep().await;
    let other = world.given(SigningKey::generate().unwrap(), None);
    let set = told(&other).await;
    let current = signing(&made).unwrap();
    assert!([&both[0], &both[1], &current].into_iter().all(|kid| set.contains(kid)), "{set:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_store_did_without_saying_so_is_not_done_twice() {
    let world = World::new();
    let keys = world.start().await;
    world.pass(ALONE).await;
    // Its publication has ended, so a new key is generated.
    world.forgets_to_say.store(true, Ordering::Relaxed);
    world.rows.lock().clear();
    for _ in 0..20 {
        keys.keep().await;
        assert_eq!(signing(&keys), None, "as far as it knows it has none that is published");
        world.pass(KEEP_EVERY).await;
    }
    assert_eq!(world.rows.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn either_gateway_tells_the_keys_of_both_and_those_of_one_that_is_gone_until_they_end() {
    let world = World::new();
    let one = world.start().await;
    let since = Instant::now();
    let other = world.start().await;
    assert!(since.elapsed() >= SEEN, "who begins beside others signs when all of them tell its key");
    let both = [signing(&one).unwrap(), signing(&other).unwrap()];
    for keys in [&one, &other] {
        let set = told(keys).await;
        assert_eq!(set.len(), 2);
        assert!(both.iter().all(|kid| set.contains(kid)), "{set:?}");
    }
    // Killed just after it signed.
    drop(one);
    world.pass(REST - KEEP_EVERY).await;
    assert!(told(&other).await.contains(&both[0]));
    world.pass(PUBLISH_FOR).await;
    other.keep().await;
    assert!(!told(&other).await.contains(&both[0]));
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_ends_leaves_its_key_for_its_last_token_only_and_nobody_waits_for_it() {
    let world = World::new();
    let one = world.start().await;
    let kid = signing(&one).unwrap();
    one.withdraw().await;
    assert_eq!(world.left(&kid), REST);
    let since = Instant::now();
    let next = world.start().await;
    assert_eq!(since.elapsed(), Duration::ZERO);
    assert!(told(&next).await.contains(&kid));
}

#[tokio::test(start_paused = true)]
async fn a_set_is_fresh_for_a_second_and_outlives_its_store() {
    let world = World::new();
    let keys = world.start().await;
    let own = signing(&keys).unwrap();
    let other = world.given(SigningKey::generate().unwrap(), None);
    let others = signing(&other).unwrap();
    assert_eq!(told(&keys).await, std::slice::from_ref(&own));
    other.keep().await;
    assert_eq!(told(&keys).await, std::slice::from_ref(&own), "the store is asked once a second");
    world.pass(FRESH).await;
    assert_eq!(told(&keys).await, [own.clone(), others.clone()]);
    world.fail(true);
    world.pass(HOUR).await;
    assert_eq!(told(&keys).await, [own, others]);
    world.pass(HOUR).await;
    assert_eq!(told(&keys).await, Vec::<String>::new(), "nothing beyond its time");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_key_is_left_out() {
    let world = World::new();
    let keys = world.start().await;
    let own = signing(&keys).unwrap();
    let until = u64::MAX;
    for (n, jwk) in
        ["", "{}", r#"{"kty":"RSA","n":"AQAB"}"#, r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#]
            .into_iter()
            .enumerate()
    {
        world.rows.lock().insert(([9; 16], n.to_string()), (jwk.into(), until));
    }
    assert_eq!(told(&keys).await, [own]);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_whose_store_is_away_starts_and_signs_once_its_key_is_published() {
    let world = World::new();
    world.fail(true);
    let keys = world.start().await;
    assert!(!keys.keep().await);
    assert_eq!((signing(&keys), told(&keys).await), (None, Vec::new()));
    world.fail(false);
    assert!(keys.keep().await);
    assert_eq!(signing(&keys), None, "others do not tell the key yet");
    world.pass(SEEN).await;
    let kid = signing(&keys).unwrap();
    assert_eq!(told(&keys).await, *std::slice::from_ref(&kid));
}

#[tokio::test(start_paused = true)]
async fn a_gateway_without_room_for_its_key_starts_and_signs_once_there_is_room() {
    let world = World::new();
    world.is_full.store(true, Ordering::Relaxed);
    let keys = world.start().await;
    keys.keep().await;
    assert_eq!((signing(&keys), told(&keys).await), (None, Vec::new()));
    world.is_full.store(false, Ordering::Relaxed);
    keys.keep().await;
    assert_eq!(signing(&keys), None, "others do not tell the key yet");
    world.pass(SEEN).await;
    let kid = signing(&keys).unwrap();
    assert_eq!(told(&keys).await, *std::slice::from_ref(&kid));
    assert!(world.left(&kid) > REST);
}

#[tokio::test(start_paused = true)]
async fn the_operators_keys_sign_whatever_the_store_does_and_are_told_by_gateways_without_them() {
    let world = World::new();
    let other = world.start().await;
    world.fail(true);
    let before = SigningKey::generate().unwrap().public().clone();
    let keys = world.given(SigningKey::generate().unwrap(), Some(before.clone()));
    let kid = signing(&keys).unwrap();
    keys.keep().await;
    world.pass(50 * HOUR).await;
    assert_eq!(signing(&keys), Some(kid.clone()));
    assert_eq!(told(&keys).await, [kid.clone(), before.kid().to_owned()]);
    world.fail(false);
    keys.keep().await;
    world.pass(FRESH).await;
    let set = told(&other).await;
    assert!(set.contains(&kid) && set.contains(&before.kid().to_owned()), "{set:?}");
    for _ in 0..300 {
        world.pass(KEEP_EVERY).await;
        keys.keep().await;
        assert!(world.left(&kid) > REST);
    }
}
