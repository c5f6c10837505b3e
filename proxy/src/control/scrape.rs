//! Reading an engine's own numbers: which endpoint, how often, and what to do when it is missing.
//!
//! One reading costs the engine at most one cheap request a second (vLLM's 58 KB are the dearest). A
//! reading that fails is counted and shown; it never takes a backend down, and it never stops the
//! proxy's own counters, which are exact without it.

use super::http_client::{FetchError, Reply, Target, get};
use super::reading::Reading;
use super::{llamacpp, sglang, vllm};
use crate::published::EngineKind;

/// What a scraper remembers of its engine between readings.
#[derive(Debug, Default)]
pub(crate) struct Scraper {
    facts: Option<Reading>,
    without_loads: bool,
    proven_split: bool,
    proven_shared: bool,
}

impl Scraper {
    /// Forgets the engine: another process may answer now.
    pub(crate) fn forget(&mut self) {
        *self = Scraper::default();
    }

    /// llama.cpp's pool ran out: its slots share it, whatever they seemed to hold.
    pub(crate) fn pool_ran_out(&mut self) {
        (self.proven_split, self.proven_shared) = (false, true);
    }

    /// Takes one reading. `None` when this kind of engine says nothing of itself.
    ///
    /// # Errors
    /// In words: the engine did not answer, or its answer could not be read.
    pub(crate) async fn read(
        &mut self,
        target: Target<'_>,
        kind: EngineKind,
    ) -> Result<Option<Reading>, String> {
        match kind {
            EngineKind::Vllm => vllm_reading(target).await.map(Some),
            EngineKind::Sglang => self.sglang_reading(target).await.map(Some),
            EngineKind::Llamacpp => self.llamacpp_reading(target).await.map(Some),
            EngineKind::Openai | EngineKind::Unknown => Ok(None),
        }
    }

    async fn sglang_reading(&mut self, target: Target<'_>) -> Result<Reading, String> {
        if self.facts.is_none() {
            let body = body_of(target, "/server_info").await?;
            self.facts = sglang::server_info(&body);
        }
        let facts = self.facts.clone().unwrap_or_default();
        if !self.without_loads {
            let reply = get(target, sglang::LOADS_PATH).await.map_err(words)?;
            if let Some(reading) = sglang::loads(&reply.body).filter(|_| reply.is_ok()) {
                return Ok(reading.with_facts(&facts));
            }
            self.without_loads = reply.status == 404;
        }
        let text = body_of(target, "/metrics").await?;
        let reading = sglang::metrics(&String::from_utf8_lossy(&text));
        Ok(reading.ok_or_else(|| unreadable("/metrics"))?.with_facts(&facts))
    }

    async fn llamacpp_reading(&mut self, target: Target<'_>) -> Result<Reading, String> {
        let body = body_of(target, "/props").await?;
        let props = llamacpp::props(&body).ok_or_else(|| unreadable("/props"))?;
        if props.sleeping || !props.shows_slots {
            return Ok(props.reading(self.proven_split));
        }
        let body = body_of(target, "/slots").await?;
        let slots = llamacpp::slots(&body).ok_or_else(|| unreadable("/slots"))?;
        self.proven_split |= !self.proven_shared && slots.prove_split(&props);
        Ok(slots.reading(props.reading(self.proven_split)))
    }
}

async fn vllm_reading(target: Target<'_>) -> Result<Reading, String> {
    let body = body_of(target, "/metrics").await?;
    let reading = vllm::read(&String::from_utf8_lossy(&body));
    if reading.running.is_none() {
        return Err("/metrics has none of vLLM's names".to_owned());
    }
    Ok(reading)
}

async fn body_of(target: Target<'_>, path: &str) -> Result<Vec<u8>, String> {
    let reply: Reply = get(target, path).await.map_err(words)?;
    if !reply.is_ok() {
        return Err(format!("{path} answered {}", reply.status));
    }
    Ok(reply.body)
}

fn words(error: FetchError) -> String {
    error.to_string()
}

fn unreadable(path: &str) -> String {
    format!("{path} could not be read")
}
