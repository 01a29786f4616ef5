//! The topic of Kafka from which the control role takes revocations.
//!
//! Keeps true: without a list of orgs the topic revokes nothing; the password comes only from the environment and prints as
//! `***`; what the topic says is not in clear on a network that nothing else protects.

use asp_control::events;
use asp_kafka::TopicSettings;
use asp_platform::address;
use asp_platform::secret::Secret;
use clap::Args;

use super::Settings;
use super::source::Checks;
use super::values::{List, list};

const ENV_BROKERS: &str = "ASP_KAFKA_BROKERS";
const ENV_ORGS: &str = "ASP_KAFKA_ORGS";
const ENV_USER: &str = "ASP_KAFKA_USER";
const ENV_PASSWORD: &str = "ASP_KAFKA_PASSWORD";
const TOPIC: &str = "asp.revocations";
const GROUP: &str = "asp-control";
/// Maximum length of a name or password in bytes; that of a topic is Kafka's.
const MAX_NAME: usize = 249;

/// Settings of Kafka
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Kafka")]
pub struct KafkaSection {
    /// Brokers of the topic that revokes tokens, users and orgs: `host:port,…`; used by the control role (docs/kafka.md)
    /// [default: none: no topic revokes]
    #[arg(long, env = "ASP_KAFKA_BROKERS", value_parser = brokers)]
    pub kafka_brokers: Option<String>,
    /// Topic of revocations [default: asp.revocations]
    #[arg(long, env = "ASP_KAFKA_TOPIC", value_parser = name)]
    kafka_topic: Option<String>,
    /// Group of consumers, the same for every control plane [default: asp-control]
    #[arg(long, env = "ASP_KAFKA_GROUP", value_parser = name)]
    kafka_group: Option<String>,
    /// Orgs in which the topic may revoke: names, `prefix*` or `*`, separated by commas (required with `ASP_KAFKA_BROKERS`)
    #[arg(long, env = "ASP_KAFKA_ORGS", default_value = "", value_parser = orgs)]
    pub kafka_orgs: List<String>,
    /// User at the brokers (SASL/PLAIN) [default: none]
    #[arg(long, env = "ASP_KAFKA_USER", value_parser = user)]
    kafka_user: Option<String>,
    /// Password of that user
    #[arg(long, env = "ASP_KAFKA_PASSWORD", hide_env_values = true, value_parser = password)]
    kafka_password: Option<Secret>,
}

impl KafkaSection {
    /// Returns the topic; `None` if no brokers are given.
    pub fn topic(&self) -> Option<TopicSettings> {
        let brokers = self.kafka_brokers.clone()?;
        Some(TopicSettings {
            brokers,
            topic: self.kafka_topic.clone().unwrap_or_else(|| TOPIC.to_owned()),
            group: self.kafka_group.clone().unwrap_or_else(|| GROUP.to_owned()),
            login: self.kafka_user.clone().zip(self.kafka_password.clone()),
        })
    }

    /// Checks that the settings of the topic are complete, and that there are none without brokers.
    pub(super) fn check_parts(&self, checks: &mut Checks<'_>) {
        let [user, password] = [self.kafka_user.is_some(), self.kafka_password.is_some()];
        if self.kafka_brokers.is_none() {
            let given = [
                ("ASP_KAFKA_TOPIC", self.kafka_topic.is_some()),
                ("ASP_KAFKA_GROUP", self.kafka_group.is_some()),
                (ENV_ORGS, !self.kafka_orgs.is_empty()),
                (ENV_USER, user),
                (ENV_PASSWORD, password),
            ];
            checks.without(ENV_BROKERS, &given);
            return;
        }
        if self.kafka_orgs.is_empty() {
            let message = "is required with ASP_KAFKA_BROKERS: the orgs in which the topic may revoke, e.g. `acme,team-*`, or \
                           `*` for all of them";
            checks.fault(ENV_ORGS, message);
        }
        if user != password {
            let missing = if user { ENV_PASSWORD } else { ENV_USER };
            checks.fault(missing, format!("is required with {}", if user { ENV_USER } else { ENV_PASSWORD }));
        }
    }

    /// Checks that no message comes in clear over a network that nothing else protects.
    pub(super) fn check(&self, checks: &mut Checks<'_>, settings: &Settings) {
        let Some(brokers) = &self.kafka_brokers else { return };
        let is_here = |broker: &str| broker.rsplit_once(':').is_some_and(|(host, _)| is_this_machine(host));
        if settings.dev || settings.in_mesh() || brokers.split(',').all(|broker| is_here(broker.trim())) {
            return;
        }
        let message = "names brokers beyond this machine, and the client has no TLS: who is on the way could revoke, or hold \
                       revocations back. Go there through a tunnel on this machine, or set ASP_PEER_PLAINTEXT=mesh where \
                       something else encrypts (docs/kafka.md)";
        checks.fault(ENV_BROKERS, message);
    }
}

fn is_this_machine(host: &str) -> bool {
    address::is_this_machine(host.trim_start_matches('[').trim_end_matches(']'))
}

#[cfg(feature = "kafka")]
fn brokers(text: &str) -> Result<String, String> {
    let is_broker = |broker: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
        broker.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && host.chars().all(plain) && port.parse::<u16>().is_ok_and(|port| port > 0)
        })
    };
    let brokers = list(text, |broker| match is_broker(broker) {
        true => Ok(broker.to_owned()),
        false => Err(format!("must be host:port,…, not `{broker}`")),
    })?;
    if brokers.is_empty() { Err("must be host:port,…".to_owned()) } else { Ok(brokers.join(",")) }
}

#[cfg(not(feature = "kafka"))]
fn brokers(_: &str) -> Result<String, &'static str> {
    Err("is for programs that were built with the feature `kafka`, unlike this one")
}

/// Parses the name of a topic or a group, by Kafka's rules for topics.
fn name(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_plain) && !matches!(text, "." | "..") {
        true => Ok(text.to_owned()),
        false => Err(format!("must be 1 to {MAX_NAME} of A-Z a-z 0-9 . _ -, not `{text}`")),
    }
}

fn orgs(text: &str) -> Result<List<String>, String> {
    list(text, |org| match events::org_pattern_fault(org) {
        None => Ok(org.to_owned()),
        Some(fault) => Err(format!("`{org}` {fault}")),
    })
}

fn user(text: &str) -> Result<String, &'static str> {
    match text.len() <= MAX_NAME && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err("must be printable without spaces"),
    }
}

/// Parses the password. No fault repeats it.
fn password(text: &str) -> Result<Secret, &'static str> {
    user(text).map(Secret::from)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::args::ServeArgs;

    const GOOD: [(&str, &str); 4] = [
        ("ASP_PUBLIC_URL", "https://mcp.example.com"),
        ("ASP_SEAL_KEY", "0123456789abcdef0123456789abcdef"),
        (ENV_BROKERS, "127.0.0.1:9092, [::1]:9093"),
        (ENV_ORGS, "acme,team-*"),
    ];

    fn read(more: &[(&'static str, &'static str)], less: &[&str]) -> Result<KafkaSection, Vec<String>> {
        let mut environment: BTreeMap<&str, &str> = GOOD.into_iter().chain(more.iter().copied()).collect();
        environment.retain(|name, _| !less.contains(name));
        let settings = Settings::read(&ServeArgs::default(), &environment);
        assert!(!format!("{settings:?}").contains("hunter2"), "secrets print as ***");
        settings
            .map(|settings| settings.kafka)
            .map_err(|faults| faults.into_iter().map(|fault| fault.name).collect())
    }

    #[cfg(not(feature = "kafka"))]
    #[test]
    fn a_build_without_the_feature_refuses_the_brokers_and_says_why() {
        assert_eq!(read(&[], &[]).unwrap_err(), [ENV_BROKERS]);
        assert!(brokers("127.0.0.1:9092").unwrap_err().contains("feature `kafka`"));
        assert!(read(&[], &[ENV_BROKERS, ENV_ORGS]).unwrap().topic().is_none());
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn a_topic_has_names_of_its_own_and_orgs_that_the_operator_names() {
        type Case = (&'static [(&'static str, &'static str)], &'static [&'static str], &'static str);
        let read_topic = |more: &[(&'static str, &'static str)]| read(more, &[]).unwrap().topic().unwrap();
        let topic = read_topic(&[]);
        assert_eq!(
            (topic.brokers.as_str(), topic.topic.as_str(), topic.group.as_str(), topic.login.is_none()),
            ("127.0.0.1:9092,[::1]:9093", TOPIC, GROUP, true)
        );
        let named = read_topic(&[
            ("ASP_KAFKA_TOPIC", "identity.revocations"),
            ("ASP_KAFKA_GROUP", "asp-eu"),
            (ENV_USER, "asp"),
            (ENV_PASSWORD, "hunter2"),
        ]);
        assert_eq!((named.topic.as_str(), named.group.as_str()), ("identity.revocations", "asp-eu"));
        assert_eq!(named.login.unwrap().1.expose(), "hunter2");
        assert_eq!(read(&[], &[]).unwrap().kafka_orgs, ["acme", "team-*"]);
        let cases: [Case; 11] = [
            (&[], &[ENV_ORGS], ENV_ORGS),
            (&[(ENV_ORGS, "a*b")], &[], ENV_ORGS),
            (&[("ASP_KAFKA_TOPIC", "a b")], &[], "ASP_KAFKA_TOPIC"),
            (&[("ASP_KAFKA_TOPIC", "..")], &[], "ASP_KAFKA_TOPIC"),
            (&[(ENV_USER, "asp")], &[], ENV_PASSWORD),
            (&[(ENV_PASSWORD, "hunter2")], &[], ENV_USER),
            (&[(ENV_BROKERS, "127.0.0.1")], &[], ENV_BROKERS),
            (&[(ENV_BROKERS, "127.0.0.1:0")], &[], ENV_BROKERS),
            (&[(ENV_BROKERS, "http://127.0.0.1:9092")], &[], ENV_BROKERS),
            (&[(ENV_BROKERS, "kafka.example.com:9092")], &[], ENV_BROKERS),
            (&[], &[ENV_BROKERS], ENV_ORGS),
        ];
        for (more, less, fault) in cases {
            assert_eq!(read(more, less).unwrap_err(), [fault], "{more:?} {less:?}");
        }
        let mesh = [(ENV_BROKERS, "kafka.example.com:9092"), ("ASP_PEER_PLAINTEXT", "mesh")];
        assert!(read(&mesh, &[]).is_ok());
    }
}
