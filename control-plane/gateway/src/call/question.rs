//! What a running call asks its caller: elicitations (design §5, `input_required`).
//!
//! Keeps true: several questions may be open, each with its own id; an answer reaches exactly the question
//! it names; a call holds at most 16 open questions; when the call ends, nobody waits any longer.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

/// Most questions one call may have open.
const MAX_OPEN: usize = 16;

/// A form the caller is asked to fill in (MCP `elicitation/create`).
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Unique within the call.
    pub id: String,
    pub message: String,
    /// MCP's restricted form schema: a flat object.
    pub requested_schema: Value,
}

/// What the caller answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Accepted(Value),
    Declined,
    Cancelled,
}

impl Answer {
    /// Reads an MCP `ElicitResult`.
    pub fn parse(result: &Value) -> Option<Answer> {
        match result.get("action")?.as_str()? {
            "accept" => Some(Answer::Accepted(result.get("content").cloned().unwrap_or(Value::Null))),
            "decline" => Some(Answer::Declined),
            "cancel" => Some(Answer::Cancelled),
            _ => None,
        }
    }
}

/// The open questions of one call.
#[derive(Default)]
pub struct Questions {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    closed: bool,
    open: HashMap<String, (Question, oneshot::Sender<Answer>)>,
}

impl Questions {
    /// Opens a question; `None` when the call has ended or has too many open.
    pub fn open(&self, question: Question) -> Option<oneshot::Receiver<Answer>> {
        let mut inner = self.inner.lock();
        if inner.closed || inner.open.len() >= MAX_OPEN {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        inner.open.insert(question.id.clone(), (question, sender));
        Some(receiver)
    }

    /// The open questions, in the order of their ids.
    pub fn pending(&self) -> Vec<Question> {
        let mut pending: Vec<Question> =
            self.inner.lock().open.values().map(|(question, _)| question.clone()).collect();
        pending.sort_by(|a, b| a.id.cmp(&b.id));
        pending
    }

    /// Answers one question; false when no such question is open.
    pub fn answer(&self, id: &str, answer: Answer) -> bool {
        match self.inner.lock().open.remove(id) {
            Some((_, sender)) => sender.send(answer).is_ok(),
            None => false,
        }
    }

    /// Withdraws a question that is no longer waited for.
    pub fn withdraw(&self, id: &str) {
        self.inner.lock().open.remove(id);
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
    use serde_json::json;

    fn question(id: &str) -> Question {
        Question { id: id.into(), message: "?".into(), requested_schema: json!({}) }
    }

    #[tokio::test]
    async fn an_answer_reaches_only_its_own_question() {
        let questions = Questions::default();
        let first = questions.open(question("a")).unwrap();
        let second = questions.open(question("b")).unwrap();
        assert!(questions.answer("b", Answer::Declined));
        assert!(!questions.answer("b", Answer::Declined));
        assert!(questions.answer("a", Answer::Accepted(json!(1))));
        assert_eq!(first.await.unwrap(), Answer::Accepted(json!(1)));
        assert_eq!(second.await.unwrap(), Answer::Declined);
    }

    #[tokio::test]
    async fn the_end_of_the_call_ends_every_wait_and_refuses_new_questions() {
        let questions = Questions::default();
        let waiting = questions.open(question("a")).unwrap();
        questions.close();
        assert!(waiting.await.is_err());
        assert!(questions.open(question("b")).is_none());
    }

    #[test]
    fn open_questions_are_bounded() {
        let questions = Questions::default();
        let held: Vec<_> = (0..MAX_OPEN).map(|n| questions.open(question(&n.to_string())).unwrap()).collect();
        assert!(questions.open(question("more")).is_none());
        drop(held);
    }

    #[test]
    fn only_the_three_actions_are_answers() {
        assert_eq!(Answer::parse(&json!({"action": "accept"})), Some(Answer::Accepted(Value::Null)));
        assert_eq!(Answer::parse(&json!({"action": "decline"})), Some(Answer::Declined));
        assert_eq!(Answer::parse(&json!({"action": "cancel"})), Some(Answer::Cancelled));
        for bad in [json!({}), json!({"action": "yes"}), json!({"action": 1}), json!([]), Value::Null] {
            assert_eq!(Answer::parse(&bad), None);
        }
    }
}
