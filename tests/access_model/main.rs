//! Who may call what, in small worlds: the control plane's builder makes the snapshots, the edge's code and the gateway's
//! entitlement decide, and one plain model must say the same of every request.
//!
//! The dimensions are offers, exposure, bindings, scopes, issuers and machines, all of them at once. Each rule of the model
//! can be turned round, and a model with any one of them turned must disagree somewhere: a rule that no world tells
//! apart is not tested. Keeps true: the edge and a gateway without an edge answer alike (I-1), and lists and calls
//! agree (I-10).

// Test code may fail loudly; Clippy sees only the `#[test]`s themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod answer;
mod credentials;
mod model;
mod platform;
mod random;
mod stored;
mod turned;
mod world;

use asp_edge::Reason;

use answer::{Access, Answer, Passage};
use credentials::{Credentials, Question};
use model::Model;
use platform::Platform;
use random::Random;
use turned::{ALL, Turned};
use world::World;

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const WORLDS: u64 = 10_000;
/// Requests in each world.
const QUESTIONS: usize = 12;
/// Disagreements of a turned model that are counted: what is caught is not asked for again.
const ENOUGH: u32 = 20;
/// Least number of requests that must end in each way.
const LEAST: u32 = 100;

/// What has been seen.
#[derive(Default)]
struct Tally {
    differences: Vec<u32>,
    answers: Vec<Answer>,
}

impl Tally {
    /// Asks every model with one rule turned round that has not been caught often enough.
    fn add(&mut self, (world, credentials): (&World, &Credentials), question: &Question, real: Answer) {
        self.answers.push(real);
        self.differences.resize(ALL.len(), 0);
        for (turned, differences) in ALL.into_iter().zip(&mut self.differences) {
            if *differences < ENOUGH {
                let model = Model { world, credentials, turned: Some(turned) };
                *differences += u32::from(model.answer(question) != real);
            }
        }
    }

    fn check(&self) {
        let refused = |reason: Reason| self.count(|answer| answer.gateway == Err(reason));
        let reached =
            |access: Access| self.count(|answer| answer.primitives.is_some_and(|all| all.contains(&access)));
        let seen = [
            ("admitted", self.count(|answer| answer.gateway.is_ok())),
            ("unjudged", self.count(|answer| answer.edge == Passage::Unjudged)),
            ("unknown_server", refused(Reason::UnknownServer)),
            ("token_missing", refused(Reason::TokenMissing)),
            ("token_invalid", refused(Reason::TokenInvalid)),
            ("insufficient_scope", refused(Reason::InsufficientScope)),
            ("no server", reached(Access::NoServer)),
            ("hidden", reached(Access::Hidden)),
            ("scopes of the primitive", reached(Access::LacksScopes)),
            ("approval", reached(Access::NeedsApproval)),
            ("allowed", reached(Access::Allowed)),
        ];
        println!("{seen:?}");
        for (turned, differences) in ALL.iter().zip(&self.differences) {
            println!("{turned:?}: {differences}");
        }
        let rare: Vec<_> = seen.iter().filter(|(_, count)| *count < LEAST).collect();
        assert!(rare.is_empty(), "the worlds are too narrow: {rare:?}");
        let caught = |turned: &Turned| ALL.iter().zip(&self.differences).any(|(t, n)| t == turned && *n > 0);
        let missed: Vec<Turned> = ALL.into_iter().filter(|turned| !caught(turned)).collect();
        assert!(missed.is_empty(), "models without one of these rules decide alike: {missed:?}");
    }

    fn count(&self, is: impl Fn(&Answer) -> bool) -> u32 {
        u32::try_from(self.answers.iter().filter(|answer| is(answer)).count()).unwrap()
    }
}

#[test]
fn edge_and_gateway_decide_as_the_model_does_and_as_none_with_one_rule_turned() {
    println!("seed {SEED:#x}, {WORLDS} worlds");
    let mut random = Random::new(SEED);
    let credentials = Credentials::new();
    let mut platform = Platform::start();
    let mut tally = Tally::default();
    let mut world = World::default();
    for number in 1..=WORLDS {
        world = world.next(&mut random, number);
        platform.publish(stored::state(&world, &credentials, number));
        for _ in 0..QUESTIONS {
            let question = credentials.question(&mut random);
            let real = platform.answer(&credentials, &question);
            let model = Model { world: &world, credentials: &credentials, turned: None };
            assert_eq!(
                real,
                model.answer(&question),
                "seed {SEED:#x}, world {number}: the platform, then the model, of {question:?} in {world:#?}"
            );
            tally.add((&world, &credentials), &question, real);
        }
    }
    tally.check();
}
