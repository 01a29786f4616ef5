//! A browser without a screen: follows redirects, keeps cookies, fills in forms.
//!
//! Only as much of HTML as login pages have: one form, its action, its hidden fields.

use std::collections::HashMap;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};

use crate::http1::{self, Response};

/// Steps of one login.
const MAX_STEPS: usize = 20;

/// One person's browser.
#[derive(Default)]
pub struct Browser {
    /// By authority.
    cookies: HashMap<String, HashMap<String, String>>,
    /// The pages that were shown, without their style.
    pub seen: Vec<String>,
}

/// What a person fills in.
pub struct Person<'a> {
    pub user: &'a str,
    pub password: &'a str,
    /// Whether he lets the client in.
    pub allows: bool,
}

impl Browser {
    /// Opens `url` and does what the pages ask for, until it is sent to an address that begins with `end`: that address.
    pub async fn visit(&mut self, url: &str, person: &Person<'_>, end: &str) -> Result<String> {
        let mut at = url.to_owned();
        let mut answer = self.ask("GET", &at, None).await?;
        for _ in 0..MAX_STEPS {
            if let Some(location) = answer.header("location") {
                let to = join(&at, location)?;
                if to.starts_with(end) {
                    return Ok(to);
                }
                answer = self.ask("GET", &to, None).await?;
                at = to;
                continue;
            }
            let page = answer.text();
            self.seen.push(page.clone());
            let form = Form::first(&page).with_context(|| format!("{at}: {} {page:.600}", answer.status))?;
            let filled = form.filled(person);
            let to = join(&at, &form.action)?;
            answer = self.ask("POST", &to, Some(&filled)).await?;
            at = to;
        }
        bail!("no end after {MAX_STEPS} steps, at {at}")
    }

    /// Opens `url` and does what the pages ask for, until one asks for nothing.
    pub async fn visit_all(&mut self, url: &str, person: &Person<'_>) -> Result<()> {
        let mut at = url.to_owned();
        let mut answer = self.ask("GET", &at, None).await?;
        for _ in 0..MAX_STEPS {
            if let Some(location) = answer.header("location") {
                at = join(&at, location)?;
                answer = self.ask("GET", &at, None).await?;
                continue;
            }
            let page = answer.text();
            self.seen.push(page.clone());
            let Some(form) = Form::first(&page) else { return Ok(()) };
            at = join(&at, &form.action)?;
            answer = self.ask("POST", &at, Some(&form.filled(person))).await?;
        }
        bail!("no end after {MAX_STEPS} steps, at {at}")
    }

    /// One request, with the cookies of its authority.
    pub async fn ask(&mut self, method: &str, url: &str, form: Option<&str>) -> Result<Response> {
        let (authority, target) = parts(url)?;
        let mut headers = vec![("host".to_owned(), authority.clone().into_bytes())];
        let cookies = self.cookies.entry(authority.clone()).or_default();
        if !cookies.is_empty() {
            let pairs: Vec<String> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            headers.push(("cookie".to_owned(), pairs.join("; ").into_bytes()));
        }
        if form.is_some() {
            headers.push(("content-type".to_owned(), b"application/x-www-form-urlencoded".to_vec()));
            headers.push(("origin".to_owned(), format!("http://{authority}").into_bytes()));
        }
        let body = form.unwrap_or_default().as_bytes().to_vec();
        let address: SocketAddr = authority.parse().with_context(|| url.to_owned())?;
        let request = http1::Request { method: method.into(), target, headers, body };
        let answer = http1::send(address, &request).await?;
        for (_, value) in answer.headers.iter().filter(|(name, _)| name == "set-cookie") {
            if let Some((name, value)) = value.split(';').next().and_then(|pair| pair.split_once('=')) {
                cookies.insert(name.trim().to_owned(), value.to_owned());
            }
        }
        Ok(answer)
    }
}

/// Authority, and path with query, of an http URL.
fn parts(url: &str) -> Result<(String, String)> {
    let rest = url.strip_prefix("http://").with_context(|| format!("no plain http: {url}"))?;
    let end = rest.find('/').unwrap_or(rest.len());
    let target = rest[end..].split('#').next().unwrap_or_default();
    Ok((rest[..end].to_owned(), if target.is_empty() { "/".to_owned() } else { target.to_owned() }))
}

/// Where a reference on a page leads.
fn join(base: &str, reference: &str) -> Result<String> {
    if reference.contains("://") {
        return Ok(reference.to_owned());
    }
    let (authority, target) = parts(base)?;
    let path = target.split('?').next().unwrap_or_default();
    Ok(match reference.starts_with('/') {
        true => format!("http://{authority}{reference}"),
        false => format!(
            "http://{authority}{}/{reference}",
            path.rsplit_once('/').map_or("", |(folder, _)| folder)
        ),
    })
}

struct Form {
    action: String,
    fields: Vec<(String, String)>,
    buttons: Vec<String>,
}

impl Form {
    fn first(page: &str) -> Option<Form> {
        let start = page.find("<form")?;
        let end = page[start..].find("</form>").map_or(page.len(), |end| start + end);
        let form = &page[start..end];
        let head = tag(form)?;
        let mut fields = Vec::new();
        let mut buttons = Vec::new();
        for piece in form.split('<').skip(1) {
            let Some(name) = attribute(piece, "name") else { continue };
            match piece.split([' ', '\n', '>']).next() {
                Some("input") if attribute(piece, "type").as_deref() == Some("submit") => buttons.push(name),
                Some("input") => fields.push((name, attribute(piece, "value").unwrap_or_default())),
                Some("button") => buttons.push(name),
                _ => {}
            }
        }
        Some(Form { action: attribute(head, "action")?, fields, buttons })
    }

    fn filled(&self, person: &Person<'_>) -> String {
        let mut pairs = Vec::new();
        for (name, value) in &self.fields {
            let value = match name.as_str() {
                "username" => person.user,
                "password" => person.password,
                _ => value.as_str(),
            };
            pairs.push(format!("{}={}", encoded(name), encoded(value)));
        }
        if self.buttons.iter().any(|name| name == "decision") {
            pairs.push(format!("decision={}", if person.allows { "allow" } else { "deny" }));
        } else if self.buttons.iter().any(|name| name == "accept") {
            pairs.push("accept=Yes".to_owned());
        } else if self.buttons.iter().any(|name| name == "user") {
            // The page of the development issuer.
            pairs.push(format!("user={}", encoded(person.user)));
        }
        pairs.join("&")
    }
}

fn tag(text: &str) -> Option<&str> {
    text.split('>').next()
}

/// An attribute of the tag that a text begins with.
fn attribute(text: &str, name: &str) -> Option<String> {
    let head = tag(text)?;
    let at = head.find(&format!(" {name}="))? + name.len() + 2;
    let rest = &head[at..];
    let value = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => rest.split([' ', '/', '\n']).next()?,
    };
    Some(
        value
            .replace("&amp;", "&")
            .replace("&quot;", "\"")
            .replace("&#39;", "'")
            .replace("&lt;", "<")
            .replace("&gt;", ">"),
    )
}

/// Of a form (`application/x-www-form-urlencoded`).
pub fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
