//! The sample agent over a scripted model, behind two gateways that share their stores: it answers by two calls of tools,
//! remembers what a user asked at the other gateway, keeps to its bounds, and costs what its model used.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::{Cluster, Layout};
use asp_e2e::http1;
use asp_e2e::model::{Model, Question, Reply};
use asp_e2e::runtime::{self, Runtime, World};
use asp_e2e::stores::{Postgres, Redis};
use asp_e2e::tool;
use asp_e2e::wait::ErrorDetails;
use serde_json::{Value, json};

use crate::message::{modern, rest};
use crate::trial::{Shared, trials};

const KETTLES: &str = "What do two blue kettles cost?";
const EARLIER: &str = "What was it that I asked about?";
const PRICE: &str = "Two blue kettles cost 78.00 EUR.";
const COST: &str = "https://proto-labs.ai/a2a/ext/cost-v1";
/// Summaries that the agent keeps for a user, and characters of them that reach the model: 2,000 tokens of four.
const SUMMARIES: usize = 10;
const CHARACTERS: usize = 8000;

trials! { sample_agent:
    it_answers_by_tools_and_remembers_at_another_gateway,
}

async fn it_answers_by_tools_and_remembers_at_another_gateway(_: &Shared) -> Result<()> {
    let model = Model::scripted(reply).await?;
    let mut runtime = Runtime::start(&tool::root()?.join("primitives"), World::default()).await?;
    let postgres = Postgres::start().await?;
    let redis = Redis::start().await?;
    let environment = vec![
        ("ASP_DATABASE_URL", postgres.url()),
        ("ASP_REDIS_URL", redis.url()),
        ("ASP_RUNTIMES", runtime::address(&runtime.socket)),
        ("ASP_DELEGATE_URL", model.url()),
        ("ASP_DELEGATE_MODEL", "test".to_owned()),
    ];
    let cluster = Cluster::start_as(Layout { environment, ..Layout::of(2)? }).await?;
    let play = Play { cluster: &cluster, model: &model };
    let played = play.all().await;
    played
        .with_details(|| cluster.gateways.iter().map(|gateway| gateway.process.tail()).collect::<String>())?;
    runtime.process.stop().await?;
    Ok(())
}

struct Play<'a> {
    cluster: &'a Cluster,
    model: &'a Model,
}

impl Play<'_> {
    async fn all(&self) -> Result<()> {
        let [first, second] = [0, 1].map(|number| self.cluster.gateways[number].address);
        let alice = self.cluster.token(&["--org", "acme", "--user", "alice"]).await?;
        let bob = self.cluster.token(&["--org", "acme", "--user", "bob"]).await?;
        self.answers_by_two_tools(first, &alice).await?;
        let (answer, _) = self.call(second, &alice, EARLIER).await?;
        ensure!(answer == PRICE, "the other gateway: {answer}");
        let (answer, _) = self.call(first, &bob, EARLIER).await?;
        ensure!(answer == "I do not know.", "another user: {answer}");
        self.keeps_to_its_bounds([first, second], &alice).await
    }

    /// Over A2A: two calls of tools, and the cost of three questions.
    async fn answers_by_two_tools(&self, at: SocketAddr, token: &str) -> Result<()> {
        let message = json!({"messageId": format!("{:032x}", rand::random::<u128>()), "role": "ROLE_USER",
            "metadata": {"skill": "agent"}, "parts": [{"text": KETTLES}]});
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
        let mut request = rest("POST", "/samples-agent/a2a", token, &body);
        for (name, value) in [("a2a-version", "1.0"), ("a2a-extensions", COST)] {
            request.headers.push((name.into(), value.as_bytes().to_vec()));
        }
        let answer = http1::send(at, &request).await?.json()?;
        let task = &answer["result"]["task"];
        ensure!(task["status"]["state"] == "TASK_STATE_COMPLETED", "{answer}");
        let artifact = &task["artifacts"][0];
        ensure!(artifact["parts"].to_string().contains(PRICE), "{artifact}");
        let asked = self.model.take();
        ensure!(asked.len() == 3, "{} questions", asked.len());
        let (tokens_in, tokens_out) = asked
            .iter()
            .map(|question| tokens(&question.body))
            .fold((0, 0), |(all_in, all_out), (tokens_in, tokens_out)| {
                (all_in + tokens_in, all_out + tokens_out)
            });
        let usage = &artifact["metadata"][COST]["usage"];
        ensure!(*usage == json!({"input_tokens": tokens_in, "output_tokens": tokens_out}), "{artifact}");
        check_tool_loop(&asked)
    }

    /// Requests at both gateways in turn, more than are remembered.
    async fn keeps_to_its_bounds(&self, at: [SocketAddr; 2], token: &str) -> Result<()> {
        for number in 0..=SUMMARIES {
            let (_, remembered) = self.call(at[number % 2], token, &format!("Request {number}.")).await?;
            ensure!(remembered, "request {number} was not kept");
        }
        self.model.take();
        self.call(at[0], token, "The last request.").await?;
        let asked = self.model.take();
        let known = knowledge(&asked.first().context("a question")?.body);
        let known = known.split("</prior_sessions>").next().unwrap_or_default();
        ensure!(known.matches("\n- ").count() == SUMMARIES, "{known}");
        ensure!(known.contains("Request 1.") && known.contains("Request 10."), "{known}");
        ensure!(!known.contains("Request 0.") && !known.contains(PRICE), "the oldest go first: {known}");
        let block = known.split("<prior_sessions>").nth(1).context("a block")?;
        ensure!(block.len() <= CHARACTERS, "{} bytes", block.len());
        Ok(())
    }

    /// Calls the agent over MCP; returns its answer, and whether it is remembered.
    async fn call(&self, at: SocketAddr, token: &str, request: &str) -> Result<(String, bool)> {
        let params = json!({"name": "agent", "arguments": {"request": request}});
        let mut message = modern(token, "tools/call", params, &[("mcp-name", "agent")]);
        message.target = "/samples-agent/mcp".into();
        let answer = http1::send(at, &message).await?.json()?;
        let output = &answer["result"]["structuredContent"];
        let text = output["answer"].as_str().with_context(|| format!("no answer: {answer}"))?;
        Ok((text.to_owned(), output["remembered"] == true))
    }
}

/// Checks that the model was offered the tools of the server as they are, with a mark for its cache, and got their results.
fn check_tool_loop(asked: &[Question]) -> Result<()> {
    let [first, second, third] = asked else { anyhow::bail!("{asked:?}") };
    let tools = first.body["tools"].as_array().context("tools")?;
    let names: Vec<&Value> = tools.iter().map(|tool| &tool["function"]["name"]).collect();
    ensure!(names == ["search_catalog", "quote_price", "message"], "{names:?}");
    let words = &tools[0]["function"]["parameters"]["properties"]["words"];
    ensure!(words["maxLength"] == 200, "the catalog's own schema: {}", tools[0]);
    let prefix = &first.body["messages"][1]["content"][0];
    ensure!(prefix["cache_control"] == json!({"type": "ephemeral"}), "{prefix}");
    for (question, result) in [(second, "K-2"), (third, "7800")] {
        let told = question.body["messages"].as_array().and_then(|messages| messages.last());
        let told = told.context("messages")?;
        let is_result = told["role"] == "tool" && told["content"].to_string().contains(result);
        ensure!(is_result, "{told}");
    }
    Ok(())
}

/// Answer of the model to the body of a request.
fn reply(body: &Value) -> Reply {
    let results = messages(body).filter(|message| message["role"] == "tool").count();
    let message = match (request(body), results) {
        (KETTLES, 0) => calls("search_catalog", &json!({"words": "blue kettle"})),
        (KETTLES, 1) => calls("quote_price", &json!({"item": "K-2", "count": 2})),
        (KETTLES, _) => says(PRICE),
        (EARLIER, _) if knowledge(body).contains(PRICE) => says(PRICE),
        (EARLIER, _) => says("I do not know."),
        _ => says("Done."),
    };
    Reply { message, tokens: tokens(body) }
}

fn says(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn calls(name: &str, arguments: &Value) -> Value {
    let function = json!({"name": name, "arguments": arguments.to_string()});
    let call = json!({"id": format!("call-{name}"), "type": "function", "function": function});
    json!({"role": "assistant", "content": null, "tool_calls": [call]})
}

/// Tokens in and out of a question, which differ with its turn.
fn tokens(body: &Value) -> (u64, u64) {
    let count = messages(body).count() as u64;
    (100 * count, 3 + count)
}

fn messages(body: &Value) -> impl Iterator<Item = &Value> {
    body["messages"].as_array().into_iter().flatten()
}

/// The texts of the first message after the system prompt: instructions, what is known, and the request.
fn texts(body: &Value) -> Vec<&str> {
    let parts = body["messages"][1]["content"].as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

fn request(body: &Value) -> &str {
    texts(body).last().copied().unwrap_or_default()
}

fn knowledge(body: &Value) -> String {
    let texts = texts(body);
    texts.split_last().map(|(_, known)| known.join("\n")).unwrap_or_default()
}
