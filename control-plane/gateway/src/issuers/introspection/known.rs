//! Answers of issuers about opaque tokens, and the questions that are open, within bounds.
//!
//! Keeps true: a bad token never evicts a good one, nor one peer's bad tokens another's; of open questions about unknown
//! tokens there are at most [`MAX_UNKNOWN`]; a token that was good lately is asked about with permits that no unknown
//! token can hold.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::super::permits::Permits;
use super::{Answer, NoCaller, Said};
use crate::digest::{self, PeerKey};
use crate::shares::{Bounds, Owner, Share, Shares};

/// Questions to one issuer at a time about tokens that were good lately, and about unknown ones.
const AT_ONCE: usize = 32;
const UNKNOWN_AT_ONCE: usize = 16;
/// Open questions about unknown tokens, at all issuers together.
const MAX_UNKNOWN: usize = 1_024;
/// Time without a use after which a token no longer counts as good lately.
const LATELY: Duration = Duration::from_secs(3_600);

/// Good answers: tokens in all, and of one issuer. An answer has at most 16 KiB.
const GOOD: Bounds = Bounds {
    whole: Share { entries: 20_000, bytes: 64 << 20 },
    of_org: Share { entries: 10_000, bytes: 32 << 20 },
    of_user: Share::of(1),
};
/// Bad tokens: in all, of one issuer, and of one peer.
const BAD: Bounds = Bounds { whole: Share::of(20_000), of_org: Share::of(10_000), of_user: Share::of(500) };

/// A token at an issuer's endpoint.
pub(super) type Id = [u8; 16];

pub(super) fn id(token: &[u8; 32], issuer: &str, url: &str) -> Id {
    digest::shortened(&[token.as_slice(), issuer.as_bytes(), url.as_bytes()])
}

/// An answer and until when it serves. A good one stays beyond that, as the mark of a token that was good lately.
pub(super) struct CachedAnswer {
    pub(super) until: Instant,
    pub(super) said: Said,
}

/// The side of a question that asks. Dropped without a report, whoever waits gets an error.
pub(super) struct Answering {
    pub(super) id: Id,
    pub(super) is_unknown: bool,
    sender: watch::Sender<Option<Answer>>,
}

impl Answering {
    pub(super) fn report(self, answer: Answer) {
        // Nobody may wait any more.
        let _ = self.sender.send(Some(answer));
    }
}

/// Decision about a token.
pub(super) enum Next {
    Kept(Said),
    Join(watch::Receiver<Option<Answer>>),
    Ask { answering: Answering, answer: watch::Receiver<Option<Answer>>, turns: Arc<Semaphore> },
}

pub(super) struct AnswerCache {
    good: Shares<CachedAnswer>,
    bad: Shares<CachedAnswer>,
    open: HashMap<Id, watch::Receiver<Option<Answer>>>,
    /// Number of open questions about unknown tokens.
    unknown: usize,
    permits: Permits,
    unknown_permits: Permits,
}

impl Default for AnswerCache {
    fn default() -> AnswerCache {
        AnswerCache {
            good: Shares::new(GOOD),
            bad: Shares::new(BAD),
            open: HashMap::new(),
            unknown: 0,
            permits: Permits::new(AT_ONCE),
            unknown_permits: Permits::new(UNKNOWN_AT_ONCE),
        }
    }
}

impl AnswerCache {
    /// Decides about one request; `charge` is asked before a question about an unknown token is opened.
    pub(super) fn next(
        &mut self,
        id: Id,
        issuer: &str,
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
            if self.unknown >= MAX_UNKNOWN {
                return Err(NoCaller::Unavailable);
            }
        }
        let permits = if is_unknown { &mut self.unknown_permits } else { &mut self.permits };
        let turns = permits.of(issuer);
        let (sender, answer) = watch::channel(None);
        self.open.insert(id, answer.clone());
        self.unknown += usize::from(is_unknown);
        Ok(Next::Ask { answering: Answering { id, is_unknown, sender }, answer, turns })
    }

    /// The question is no longer open: the next request asks again, or finds what is kept.
    pub(super) fn close(&mut self, answering: &Answering) {
        self.open.remove(&answering.id);
        self.unknown -= usize::from(answering.is_unknown);
    }

    pub(super) fn keep(&mut self, id: Id, issuer: &str, peer: &PeerKey, kept: CachedAnswer) {
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
    use super::super::{KEEP, UNKNOWN_BURST};
    use super::*;

    fn ask(known: &mut AnswerCache, token: u8, now: Instant) -> (Answering, Arc<Semaphore>) {
        match known.next([token; 16], "kc", now, || Ok(())) {
            Ok(Next::Ask { answering, turns, .. }) => (answering, turns),
            _ => panic!("the token {token} is not asked about"),
        }
    }

    fn good() -> Said {
        Some(Arc::new(serde_json::Map::new()))
    }

    #[tokio::test]
    async fn a_token_that_was_good_lately_does_not_queue_behind_unknown_ones() {
        let mut known = AnswerCache::default();
        let now = Instant::now();
        let (answering, _) = ask(&mut known, 1, now);
        known.close(&answering);
        known.keep([1; 16], "kc", &[9; 16], CachedAnswer { until: now + KEEP, said: good() });
        assert!(matches!(known.next([1; 16], "kc", now, || Ok(())), Ok(Next::Kept(Some(_)))));
        let (_open, turns) = ask(&mut known, 2, now);
        let _taken: Vec<_> = (0..UNKNOWN_AT_ONCE).map(|_| turns.try_acquire().unwrap()).collect();
        assert!(ask(&mut known, 3, now).1.try_acquire().is_err(), "unknown tokens wait for each other");
        let later = now + KEEP * 2;
        let charge = || -> Result<(), NoCaller> { panic!("a known token takes nothing from the budget") };
        let Ok(Next::Ask { turns, .. }) = known.next([1; 16], "kc", later, charge) else {
            panic!("its answer no longer serves")
        };
        assert!(turns.try_acquire().is_ok());
    }

    #[tokio::test]
    async fn open_questions_about_unknown_tokens_are_bounded_and_closed_ones_make_room() {
        let mut known = AnswerCache::default();
        let now = Instant::now();
        let open = |known: &mut AnswerCache, token: usize| {
            known.next(id(&[0; 32], &token.to_string(), ""), "kc", now, || Ok(()))
        };
        let mut held = Vec::new();
        for token in 0..MAX_UNKNOWN {
            match open(&mut known, token) {
                Ok(Next::Ask { answering, .. }) => held.push(answering),
                _ => panic!("{token}"),
            }
        }
        assert!(matches!(open(&mut known, MAX_UNKNOWN), Err(NoCaller::Unavailable)));
        assert!(matches!(open(&mut known, 0), Ok(Next::Join(_))), "an open one is joined");
        known.close(&held.pop().unwrap());
        assert!(matches!(open(&mut known, MAX_UNKNOWN), Ok(Next::Ask { .. })));
        assert!(MAX_UNKNOWN > UNKNOWN_BURST as usize, "one peer cannot fill it");
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
