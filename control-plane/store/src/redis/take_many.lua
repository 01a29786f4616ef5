-- Takes up to so many tokens from one bucket (see take.lua).
-- KEYS: the bucket. ARGV: its capacity; the tokens that come back per second; its kind (t or f); the seconds of its window; how many.
-- Answers how many were taken.
local DAY = 86400000
local capacity, refill, kind = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local kept = redis.call('GET', KEYS[1])
if kind == 'f' then
  local length, ms = tonumber(ARGV[4]) * 1000, math.floor(clock / 1000)
  local window, used = math.floor(ms / length), 0
  if kept then
    local of, draws = string.match(kept, '^(%d+) (%d+)$')
    window = math.max(window, tonumber(of))
    if tonumber(of) == window then used = tonumber(draws) end
  end
  local taken = math.max(0, math.min(tonumber(ARGV[5]), capacity - used))
  local keep = math.max(1, (window + 1) * length - ms) + 1
  if taken > 0 then
    redis.call('SET', KEYS[1], string.format('%.0f %.0f', window, used + taken), 'PX', string.format('%.0f', keep))
  end
  return taken
end
local tokens, now = capacity, clock
if kept then
  local level, since = string.match(kept, '^(%S+) (%S+)$')
  now = math.max(clock, tonumber(since))
  tokens = math.min(capacity, tonumber(level) + (now - since) / 1000000 * refill)
end
local taken = math.max(0, math.min(tonumber(ARGV[5]), math.floor(tokens)))
if taken > 0 then
  tokens = tokens - taken
  local full = math.min(365 * DAY, math.ceil((capacity - tokens) / refill * 1000)) + 1
  redis.call('SET', KEYS[1], string.format('%.17g %.0f', tokens, now), 'PX', string.format('%.0f', full))
end
return taken
