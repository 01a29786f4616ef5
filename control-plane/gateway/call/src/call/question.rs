//! Questions of a running call to its caller: forms for the user, requests to the client's model, and the client's
//! roots (`input_required`).
//!
//! Owns: the open questions of one call and the wait for an answer. Keeps true: several questions may be open, each
//! with its own id; an answer reaches exactly the question it names, and only if it is of the question's kind and fits
//! its form; a call has at most 16 open questions, and a bounded history of answered ones, even after its end; when the
//! call ends, every wait for an answer ends; an answer counts as saved once it outlives this gateway.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use asp_proto::snapshot::Primitive;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};

use super::event::Event;
use super::outcome::Refusal;
use super::{Call, State};
use crate::clock::unix_ms;

mod asked;
mod history;

pub use asked::{Answer, Ask, CallerAnswer, MESSAGE_ID, Question};
pub use history::{History, Turn};

/// Start of the ids of questions for missing arguments. A gateway that takes a call over asks the last one again until the
/// arguments with its answer are stored.
pub const ARGUMENTS: &str = "asp.arguments.";

/// Maximum number of open questions per call.
const MAX_OPEN: usize = 16;
/// Maximum number of saved answers that are remembered; more than an inbox has entries.
const MAX_SAVED: usize = 64;
/// Time for which a question stays open if the spec names none.
const DEFAULT_INPUT_TIMEOUT: Duration = Duration::from_secs(300);

/// Asks the caller and waits for the answer, the input timeout, the deadline or a cancel.
pub async fn ask(call: &Call, question: Question) -> Result<Answer, Refusal> {
    put(call, question)?.answered(call).await
}

/// Opens a question and logs it as an event of the call; the caller of this function awaits the answer.
pub fn put(call: &Call, question: Question) -> Result<PendingQuestion, Refusal> {
    let id = question.id.clone();
    let put = || {
        call.enter(State::InputRequired);
        call.log(Event::Asked { id: id.clone() })
    };
    let Some(answer) = call.questions.open(question, put) else {
        return Err(Refusal::Internal("too many questions are open".into()));
    };
    Ok(PendingQuestion { id, answer, expires: Instant::now() + input_timeout(&call.entry.primitive) })
}

/// A question that was opened, with its pending answer.
pub struct PendingQuestion {
    id: String,
    answer: oneshot::Receiver<Answer>,
    expires: Instant,
}

impl PendingQuestion {
    /// Shortens the wait to `timeout`, if the input timeout is longer.
    pub fn within(mut self, timeout: Duration) -> PendingQuestion {
        self.expires = self.expires.min(Instant::now() + timeout);
        self
    }

    pub async fn answered(self, call: &Call) -> Result<Answer, Refusal> {
        let answered = tokio::select! {
            answered = self.answer => answered.map_err(|_| Refusal::Cancelled),
            () = tokio::time::sleep_until(self.expires) => Err(Refusal::InputExpired),
            () = tokio::time::sleep_until(call.deadline()) => Err(Refusal::Deadline),
            () = call.cancelled() => Err(Refusal::Cancelled),
        };
        withdraw(call, &self.id);
        answered
    }
}

/// Takes back a question that nothing waits for any more; ignores one that is not open.
pub fn take_back(call: &Call, id: &str) {
    if call.questions.find(id).is_some() {
        withdraw(call, id);
    }
}

/// Waits at most `longest` until no gateway that takes the call over asks an answered question again, because the answer is
/// stored, the call has ended, or its records do not suffice to continue it. Returns false if the time was too short.
pub async fn wait_until_stored(call: &Call, id: &str, longest: Duration) -> bool {
    if !is_repeated_on_takeover(id, call.ownership.resumes.is_set()) {
        return true;
    }
    let stored = async {
        tokio::select! {
            () = call.questions.wait_until_saved(id) => {}
            _ = call.finished() => {}
        }
    };
    timeout(longest, stored).await.is_ok()
}

/// Whether a gateway that takes a call over asks a question again, unless its answer is stored. `resumes`: whether the stored
/// records suffice to continue the call.
pub(crate) fn is_repeated_on_takeover(question: &str, resumes: bool) -> bool {
    resumes || question.starts_with(ARGUMENTS)
}

/// Ends the wait for a question, answered or not.
fn withdraw(call: &Call, id: &str) {
    let withdrawn = call.questions.withdraw(id);
    if withdrawn.unanswered {
        call.emit(Event::TakenBack { id: id.to_owned() });
    } else if !withdrawn.last {
        // Other gateways still show it as open.
        call.emit(Event::Answered { id: id.to_owned() });
    }
    if withdrawn.last {
        call.enter(State::Working);
        call.emit(Event::Resumed);
    }
}

/// Returns the time for which a question of a primitive stays open.
pub fn input_timeout(primitive: &Primitive) -> Duration {
    match primitive.input_timeout_seconds {
        0 => DEFAULT_INPUT_TIMEOUT,
        seconds => Duration::from_secs(u64::from(seconds)),
    }
}

/// State of a question when it was withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithdrawnQuestion {
    /// Whether it was still open.
    pub unanswered: bool,
    /// Whether no other question is open.
    pub last: bool,
}

/// The open questions of one call.
#[derive(Default)]
pub struct Questions {
    inner: Mutex<Inner>,
    /// Changes with each answer that is saved.
    saves: watch::Sender<()>,
}

#[derive(Default)]
struct Inner {
    closed: bool,
    open: HashMap<String, UnansweredQuestion>,
    history: History,
    /// Ids of the questions whose answers were saved last.
    saved: VecDeque<String>,
}

struct UnansweredQuestion {
    question: Question,
    /// Number of its event; `None` if the call had ended by then.
    number: Option<u64>,
    answer: oneshot::Sender<Answer>,
}

impl Questions {
    /// Opens a question and lets `put` log it, which returns the number of the event; `None` if the call has ended or
    /// too many questions are open.
    pub fn open(
        &self,
        question: Question,
        put: impl FnOnce() -> Option<u64>,
    ) -> Option<oneshot::Receiver<Answer>> {
        let mut inner = self.inner.lock();
        if inner.closed || inner.open.len() >= MAX_OPEN {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        // Under the lock: a reader past that event finds the question with its number.
        let number = put();
        inner.open.insert(question.id.clone(), UnansweredQuestion { question, number, answer: sender });
        Some(receiver)
    }

    /// Returns the open questions, ordered by id.
    pub fn pending(&self) -> Vec<Question> {
        let mut pending: Vec<Question> =
            self.inner.lock().open.values().map(|open| open.question.clone()).collect();
        pending.sort_by(|a, b| a.id.cmp(&b.id));
        pending
    }

    /// Passes the open questions, in the order in which they were asked, and the history to `read`; no question is
    /// opened while it runs.
    pub(super) fn read<T>(&self, read: impl FnOnce(Vec<Question>, History) -> T) -> T {
        let inner = self.inner.lock();
        let mut open: Vec<&UnansweredQuestion> = inner.open.values().collect();
        open.sort_by_key(|open| open.number);
        read(open.into_iter().map(|open| open.question.clone()).collect(), inner.history.clone())
    }

    /// Returns the answered questions.
    pub(crate) fn history(&self) -> History {
        self.inner.lock().history.clone()
    }

    /// Returns the last answered question.
    pub(crate) fn last_turn(&self) -> Option<Turn> {
        self.inner.lock().history.turns().last().cloned()
    }

    /// Adds the history in the record of a call that was not here before.
    pub fn restore(&self, stored: History) {
        self.inner.lock().history.restore(stored);
    }

    /// Adds a turn that another gateway has shared, unless it is there.
    pub fn restore_turn(&self, turn: Turn) {
        self.inner.lock().history.restore_turn(turn);
    }

    /// Returns the size of the history in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.inner.lock().history.held_bytes()
    }

    /// Returns the open question with this id.
    pub fn find(&self, id: &str) -> Option<Question> {
        self.inner.lock().open.get(id).map(|open| open.question.clone())
    }

    /// Returns the open questions whose events have these numbers, in that order.
    pub fn open_within(&self, numbers: Range<u64>) -> Vec<(u64, Question)> {
        let inner = self.inner.lock();
        let within = |open: &UnansweredQuestion| {
            let number = open.number.filter(|number| numbers.contains(number))?;
            Some((number, open.question.clone()))
        };
        let mut asked: Vec<(u64, Question)> = inner.open.values().filter_map(within).collect();
        asked.sort_by_key(|(number, _)| *number);
        asked
    }

    /// Returns the event numbers of the open questions.
    pub(crate) fn open_numbers(&self) -> Vec<u64> {
        self.inner.lock().open.values().filter_map(|open| open.number).collect()
    }

    /// Whether an open question would accept this answer.
    pub fn takes(&self, id: &str, answer: &Answer) -> bool {
        let inner = self.inner.lock();
        inner.open.get(id).is_some_and(|open| answer.clone().fitting(&open.question.ask).is_some())
    }

    /// Whether a question was answered here, as far back as the history goes.
    pub fn has_answered(&self, id: &str) -> bool {
        self.inner.lock().history.turns().any(|turn| turn.question.id == id && !turn.is_restored)
    }

    /// Notes that the answer to this question is stored where a gateway that takes the call over finds it.
    pub fn note_saved(&self, id: String) {
        let mut inner = self.inner.lock();
        if inner.saved.len() >= MAX_SAVED {
            inner.saved.pop_front();
        }
        inner.saved.push_back(id);
        drop(inner);
        self.saves.send_replace(());
    }

    /// Whether the answer to this question was saved; also false if that was more than [`MAX_SAVED`] answers ago.
    pub(crate) fn is_saved(&self, id: &str) -> bool {
        self.inner.lock().saved.iter().any(|saved| saved == id)
    }

    /// Returns a receiver that changes with each answer that is saved from now on; several may be merged.
    pub(crate) fn saves(&self) -> watch::Receiver<()> {
        self.saves.subscribe()
    }

    /// Resolves once the answer to this question is saved.
    async fn wait_until_saved(&self, id: &str) {
        let mut saves = self.saves();
        // The sender lives in `self`: only a change ends this wait.
        while !self.is_saved(id) && saves.changed().await.is_ok() {}
    }

    /// Answers one question; false if it is not open, or if the answer does not fit: then the question stays open.
    pub fn answer(&self, id: &str, answer: impl Into<CallerAnswer>) -> bool {
        let CallerAnswer { answer, message } = answer.into();
        let mut inner = self.inner.lock();
        let Some(open) = inner.open.get(id) else { return false };
        let Some(answer) = answer.fitting(&open.question.ask) else { return false };
        let Some(UnansweredQuestion { question, answer: waiting, .. }) = inner.open.remove(id) else {
            return false;
        };
        let arrived = waiting.send(answer.clone()).is_ok();
        if arrived {
            let (at_ms, is_restored) = (unix_ms(), false);
            inner.history.take(Turn { at_ms, question, answer, message, is_restored });
        }
        arrived
    }

    /// Withdraws a question that nothing waits for any more.
    pub fn withdraw(&self, id: &str) -> WithdrawnQuestion {
        let mut inner = self.inner.lock();
        let unanswered = inner.open.remove(id).is_some();
        WithdrawnQuestion { unanswered, last: inner.open.is_empty() }
    }

    pub(super) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        inner.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use serde_json::json;

    fn question(id: &str) -> Question {
        let requested_schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}}).into();
        Question { id: id.into(), ask: Ask::Form { message: "?".into(), requested_schema, relayed: false } }
    }

    #[tokio::test]
    async fn an_answer_reaches_only_its_own_question() {
        let questions = Questions::default();
        let first = questions.open(question("a"), || Some(0)).unwrap();
        let second = questions.open(question("b"), || Some(1)).unwrap();
        assert!(questions.answer("b", Answer::Declined));
        assert!(!questions.answer("b", Answer::Declined));
        assert!(questions.answer("a", Answer::Accepted(json!({"n": 1}).into())));
        assert_eq!(first.await.unwrap(), Answer::Accepted(json!({"n": 1}).into()));
        assert_eq!(second.await.unwrap(), Answer::Declined);
    }

    #[tokio::test]
    async fn saved_answers_are_remembered_within_bounds() {
        let questions = Questions::default();
        let mut saves = questions.saves();
        for number in 0..=MAX_SAVED {
            questions.note_saved(number.to_string());
        }
        saves.changed().await.unwrap();
        assert!(!questions.is_saved("0") && !questions.is_saved("other"));
        assert!(questions.is_saved("1") && questions.is_saved(&MAX_SAVED.to_string()));
    }

    /// Invariant I-13.
    #[tokio::test]
    async fn everyone_who_waits_for_a_saved_answer_gets_it() {
        let questions = Questions::default();
        let mut first = Box::pin(questions.wait_until_saved("a"));
        let mut second = Box::pin(questions.wait_until_saved("a"));
        questions.note_saved("b".into());
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        questions.note_saved("a".into());
        assert!(first.now_or_never().is_some() && second.now_or_never().is_some());
        assert!(questions.wait_until_saved("a").now_or_never().is_some());
    }

    #[tokio::test]
    async fn the_end_of_the_call_ends_every_wait_and_refuses_new_questions() {
        let questions = Questions::default();
        let waiting = questions.open(question("a"), || Some(0)).unwrap();
        questions.close();
        assert!(waiting.await.is_err());
        assert!(questions.open(question("b"), || Some(1)).is_none());
    }

    /// Invariant I-4: the bound of a call's open questions.
    #[test]
    fn open_questions_are_bounded() {
        let questions = Questions::default();
        let held: Vec<_> =
            (0..MAX_OPEN).map(|n| questions.open(question(&n.to_string()), || None).unwrap()).collect();
        assert!(questions.open(question("more"), || None).is_none());
        drop(held);
    }

    #[tokio::test]
    async fn an_answer_of_the_wrong_kind_or_form_leaves_the_question_open() {
        let questions = Questions::default();
        let form = questions.open(question("a"), || Some(0)).unwrap();
        let model = questions
            .open(Question { id: "m".into(), ask: Ask::Sampling(json!({}).into()) }, || Some(1))
            .unwrap();
        assert!(!questions.answer("a", Answer::Accepted(json!({"n": "one"}).into())));
        assert!(!questions.answer("a", Answer::Sampled(json!({}).into())));
        assert!(!questions.answer("m", Answer::Accepted(json!({}).into())));
        assert!(!questions.takes("a", &Answer::Accepted(json!({"n": "one"}).into())));
        assert!(questions.takes("a", &Answer::Accepted(json!({"n": 2}).into())));
        assert!(!questions.takes("other", &Answer::Declined) && !questions.has_answered("a"));
        assert_eq!(questions.pending().len(), 2);
        assert!(questions.answer("a", Answer::Accepted(json!({"n": 2, "unasked": true}).into())));
        assert!(questions.answer("m", Answer::Failed("no".into())));
        assert!(questions.has_answered("a") && !questions.has_answered("other"));
        assert!(!questions.takes("a", &Answer::Accepted(json!({"n": 2}).into())), "it has its answer");
        let answered = questions.read(|_, history| history);
        let turns: Vec<_> = answered.turns().map(|turn| (&*turn.question.id, &turn.answer)).collect();
        assert_eq!(
            turns,
            [("a", &Answer::Accepted(json!({"n": 2}).into())), ("m", &Answer::Failed("no".into()))],
            "what was no answer is not in the history, and what was not asked for is not in the answer"
        );
        assert_eq!(form.await.unwrap(), Answer::Accepted(json!({"n": 2}).into()));
        assert_eq!(model.await.unwrap(), Answer::Failed("no".into()));
    }
}
