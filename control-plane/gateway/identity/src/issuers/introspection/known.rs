//! Bounded cache of issuers' answers about opaque tokens, and the open questions about others.
//!
//! Keeps true: an invalid token never evicts a valid one, nor do one peer's invalid tokens evict another's; each issuer
//! has at most [`MAX_UNKNOWN`] open questions about unknown tokens, and those of one peer hold half of the permits for
//! them; a token that was recently valid uses permits that no unknown token can hold.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_call::digest::{self, PeerKey};
use asp_call::quota_table::{Owner, Quota, QuotaTable, Quotas};
use asp_platform::quota::Counts;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::permits::{Permits, Slots};
use super::{IntrospectedClaims, IntrospectionAnswer, NoCaller};

/// Maximum number of concurrent requests to one issuer about recently valid tokens, and about unknown ones.
const AT_ONCE: usize = 32;
const UNKNOWN_AT_ONCE: usize = 16;
/// Maximum number of the latter for tokens of one peer: half, so that others get answers from a slow issuer. Further
/// ones of a peer wait for each other.
const UNKNOWN_OF_PEER: usize = UNKNOWN_AT_ONCE / 2;
/// Maximum number of open questions about unknown tokens at one issuer. The snapshot bounds the number of issuers.
const MAX_UNKNOWN: usize = 1_024;
/// Time without a use after which a token no longer counts as recently valid.
const LATELY: Duration = Duration::from_secs(3_600);

/// Limits of cached answers about valid tokens: in all, and of one issuer. An answer has at most 16 KiB.
const GOOD: Quotas = Quotas {
    whole: Quota { entries: 20_000, bytes: 64 << 20 },
    of_org: Quota { entries: 10_000, bytes: 32 << 20 },
    of_user: Quota::of(1),
};
/// Limits of cached invalid tokens: in all, of one issuer, and of one peer.
const BAD: Quotas = Quotas { whole: Quota::of(20_000), of_org: Quota::of(10_000), of_user: Quota::of(500) };

/// Key of a token at an issuer's endpoint.
pub(super) type Id = [u8; 16];

pub(super) fn id(token: &[u8; 32], issuer: &str, url: &str) -> Id {
    digest::shortened(&[token.as_slice(), issuer.as_bytes(), url.as_bytes()])
}

/// A cached answer and its expiry. An expired answer about a valid token remains, as the mark of a recently valid one.
pub(super) struct CachedAnswer {
    pub(super) until: Instant,
    pub(super) said: IntrospectedClaims,
}

/// The sending side of a question.
pub(super) struct QuestionSender {
    id: Id,
    issuer: String,
    is_unknown: bool,
    sender: watch::Sender<Option<IntrospectionAnswer>>,
}

/// An open question. Dropping it closes the question: the next request asks again or finds the cached answer, and
/// requests still waiting get an error.
pub(super) struct OpenQuestion {
    cache: Arc<Mutex<AnswerCache>>,
    answering: QuestionSender,
}

impl OpenQuestion {
    pub(super) fn new(cache: Arc<Mutex<AnswerCache>>, answering: QuestionSender) -> OpenQuestion {
        OpenQuestion { cache, answering }
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.answering.is_unknown
    }

    /// Caches an answer for later requests.
    pub(super) fn keep(&self, peer: &PeerKey, kept: CachedAnswer) {
        self.cache.lock().keep(self.answering.id, &self.answering.issuer, peer, kept);
    }

    pub(super) fn report(self, answer: IntrospectionAnswer) {
        self.answering.sender.send_replace(Some(answer));
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        self.cache.lock().close(&self.answering);
    }
}

/// The decision about a token.
pub(super) enum Next {
    Kept(IntrospectedClaims),
    Join(watch::Receiver<Option<IntrospectionAnswer>>),
    Ask { answering: QuestionSender, answer: watch::Receiver<Option<IntrospectionAnswer>>, permits: Slots },
}

pub(super) struct AnswerCache {
    good: QuotaTable<CachedAnswer>,
    bad: QuotaTable<CachedAnswer>,
    open: HashMap<Id, watch::Receiver<Option<IntrospectionAnswer>>>,
    /// Numbers of open questions about unknown tokens, by issuer.
    unknown: Counts<String>,
    permits: Permits,
    unknown_permits: Permits,
    /// Permits by peer and issuer.
    peer_permits: Permits<[u8; 16]>,
}

impl Default for AnswerCache {
    fn default() -> AnswerCache {
        AnswerCache {
            good: QuotaTable::new(GOOD),
            bad: QuotaTable::new(BAD),
            open: HashMap::new(),
            unknown: Counts::default(),
            permits: Permits::new(AT_ONCE),
            unknown_permits: Permits::new(UNKNOWN_AT_ONCE),
            peer_permits: Permits::new(UNKNOWN_OF_PEER),
        }
    }
}

impl AnswerCache {
    /// Decides about one request of a peer; `charge` is called before a question about an unknown token is opened.
    pub(super) fn next(
        &mut self,
        id: Id,
        (issuer, peer): (&str, &PeerKey),
        now: Instant,
        charge: impl FnOnce() -> Result<(), NoCaller>,
    ) -> Result<Next, NoCaller> {
        let is_unknown = match self.good.touch(&id) {
            Some(kept) if kept.until > now => return Ok(Next::Kept(kept.said.clone())),
            kept => kept.is_none(),
        };
        if let Some(kept) = self.bad.touch(&id).filter(|kept| kept.until > now) {
            return Ok(Next::Kept(kept.said.clone()));
        }
        if let Some(answer) = self.open.get(&id) {
            return Ok(Next::Join(answer.clone()));
        }
        if is_unknown {
            charge()?;
            if self.unknown.get(issuer) >= MAX_UNKNOWN {
                return Err(NoCaller::Unavailable);
            }
        }
        let permits = if is_unknown { &mut self.unknown_permits } else { &mut self.permits };
        let of_issuer = permits.of(issuer);
        let of_asker = is_unknown
            .then(|| self.peer_permits.of(&digest::shortened(&[issuer.as_bytes(), peer.as_slice()])));
        let permits = Slots { of_asker, of_issuer };
        let (sender, answer) = watch::channel(None);
        self.open.insert(id, answer.clone());
        if is_unknown {
            self.unknown.add(issuer.to_owned(), 1);
        }
        let answering = QuestionSender { id, issuer: issuer.to_owned(), is_unknown, sender };
        Ok(Next::Ask { answering, answer, permits })
    }

    fn close(&mut self, answering: &QuestionSender) {
        self.open.remove(&answering.id);
        if answering.is_unknown {
            self.unknown.remove(&answering.issuer, 1);
        }
    }

    fn keep(&mut self, id: Id, issuer: &str, peer: &PeerKey, kept: CachedAnswer) {
        let org = digest::shortened(&["issuer", issuer]);
        match &kept.said {
            Some(said) => {
                let bytes = said.iter().map(|(name, value)| name.len() + value.to_string().len()).sum();
                self.bad.remove(&id);
                self.good.forget_idle(LATELY);
                self.good.replace_sized(
                    id,
                    Owner { user: digest::shortened(&[b"token".as_slice(), &id]), org },
                    kept,
                    bytes,
                );
            }
            None => {
                self.good.remove(&id);
                self.bad.replace(
                    id,
                    Owner { user: digest::shortened(&[b"peer".as_slice(), peer]), org },
                    kept,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::super::{KEEP, UNKNOWN_BURST};
    use super::*;

    const PEER: (&str, &PeerKey) = ("kc", &[9; 16]);

    fn ask(known: &mut AnswerCache, token: u8, now: Instant) -> (QuestionSender, Slots) {
        match known.next([token; 16], PEER, now, || Ok(())) {
            Ok(Next::Ask { answering, permits, .. }) => (answering, permits),
            _ => panic!("the token {token} is not asked about"),
        }
    }

    fn good() -> IntrospectedClaims {
        Some(Arc::new(serde_json::Map::new()))
    }

    #[tokio::test]
    async fn a_token_that_was_good_lately_does_not_queue_behind_unknown_ones() {
        let mut known = AnswerCache::default();
        let now = Instant::now();
        let (answering, _) = ask(&mut known, 1, now);
        known.close(&answering);
        known.keep([1; 16], "kc", &[9; 16], CachedAnswer { until: now + KEEP, said: good() });
        assert!(matches!(known.next([1; 16], PEER, now, || Ok(())), Ok(Next::Kept(Some(_)))));
        let (_open, permits) = ask(&mut known, 2, now);
        let of_issuer = permits.of_issuer;
        let _taken: Vec<_> = (0..UNKNOWN_AT_ONCE).map(|_| of_issuer.try_acquire().unwrap()).collect();
        let unknown = ask(&mut known, 3, now).1.of_issuer;
        assert!(unknown.try_acquire().is_err(), "unknown tokens wait for each other");
        let later = now + KEEP * 2;
        let charge = || -> Result<(), NoCaller> { panic!("a known token takes nothing from the budget") };
        let Ok(Next::Ask { permits, .. }) = known.next([1; 16], PEER, later, charge) else {
            panic!("its answer no longer serves")
        };
        assert!(permits.acquire().now_or_never().is_some());
    }

    #[tokio::test]
    async fn unknown_tokens_of_one_peer_leave_half_of_an_issuers_permits_to_others() {
        let mut known = AnswerCache::default();
        let now = Instant::now();
        let mut permits = |token: u8, issuer: &str, peer: u8| match known.next(
            [token; 16],
            (issuer, &[peer; 16]),
            now,
            || Ok(()),
        ) {
            Ok(Next::Ask { permits, .. }) => permits,
            _ => panic!("the token {token} is not asked about"),
        };
        let of_one: Vec<Slots> = (0..32).map(|token| permits(token, "slow", 1)).collect();
        let mut waiting: Vec<_> = of_one.iter().map(|permits| Box::pin(permits.acquire())).collect();
        let held: Vec<_> = waiting.iter_mut().filter_map(|acquiring| acquiring.now_or_never()).collect();
        assert_eq!(held.len(), UNKNOWN_OF_PEER);
        let other_peer = permits(100, "slow", 2);
        let other_issuer = permits(101, "fast", 1);
        assert!(other_peer.acquire().now_or_never().is_some(), "another peer does not queue behind them");
        assert!(other_issuer.acquire().now_or_never().is_some(), "another issuer");
    }

    #[tokio::test]
    async fn open_questions_about_unknown_tokens_are_bounded_and_closed_ones_make_room() {
        let mut known = AnswerCache::default();
        let now = Instant::now();
        let open = |known: &mut AnswerCache, token: usize| {
            known.next(id(&[0; 32], &token.to_string(), ""), PEER, now, || Ok(()))
        };
        let mut held = Vec::new();
        let elsewhere = |known: &mut AnswerCache| known.next([7; 16], ("other", &[9; 16]), now, || Ok(()));
        for token in 0..MAX_UNKNOWN {
            match open(&mut known, token) {
                Ok(Next::Ask { answering, .. }) => held.push(answering),
                _ => panic!("{token}"),
            }
        }
        assert!(matches!(open(&mut known, MAX_UNKNOWN), Err(NoCaller::Unavailable)));
        assert!(matches!(open(&mut known, 0), Ok(Next::Join(_))), "an open one is joined");
        assert!(matches!(elsewhere(&mut known), Ok(Next::Ask { .. })), "another issuer has its own bound");
        known.close(&held.pop().unwrap());
        assert!(matches!(open(&mut known, MAX_UNKNOWN), Ok(Next::Ask { .. })));
        assert!(MAX_UNKNOWN > UNKNOWN_BURST as usize, "one peer cannot fill it");
    }

    #[tokio::test]
    async fn a_dropped_question_is_no_longer_open() {
        let cache = Arc::new(Mutex::new(AnswerCache::default()));
        let now = Instant::now();
        let Ok(Next::Ask { answering, mut answer, .. }) = cache.lock().next([1; 16], PEER, now, || Ok(()))
        else {
            panic!("nothing is known")
        };
        let question = OpenQuestion::new(Arc::clone(&cache), answering);
        let task = tokio::spawn(async move {
            let _question = question;
            std::future::pending::<()>().await;
        });
        task.abort();
        assert!(answer.wait_for(Option::is_some).await.is_err(), "whoever waits gets an error");
        assert!(cache.lock().unknown.is_empty());
        assert!(matches!(cache.lock().next([1; 16], PEER, now, || Ok(())), Ok(Next::Ask { .. })));
    }

    #[test]
    fn bad_tokens_of_one_peer_evict_neither_good_ones_nor_those_of_another() {
        let mut known = AnswerCache::default();
        let until = Instant::now() + KEEP;
        known.keep([1; 16], "kc", &[1; 16], CachedAnswer { until, said: good() });
        known.keep([2; 16], "kc", &[2; 16], CachedAnswer { until, said: None });
        for token in 0..2_000_u32 {
            let id = id(&[0; 32], &token.to_string(), "");
            known.keep(id, "kc", &[1; 16], CachedAnswer { until, said: None });
        }
        assert!(known.good.contains(&[1; 16]) && known.bad.contains(&[2; 16]));
        assert_eq!(known.bad.len(), BAD.of_user.entries + 1);
    }
}
