-- Undoes a draw from every bucket (see take.lua).
-- KEYS: the buckets. ARGV: of each its capacity; the tokens that come back per second; its kind; the number of the window of the draw,
-- or -1; the holder of the slot.
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
for i, key in ipairs(KEYS) do
  local at = 5 * (i - 1)
  local capacity, refill, kind = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
  if kind == 'c' then
    redis.call('ZREM', key, ARGV[at + 5])
  elseif kind == 't' then
    -- One that is not there is full.
    local kept = redis.call('GET', key)
    if kept then
      local level, since = string.match(kept, '^(%S+) (%S+)$')
      local now = math.max(clock, tonumber(since))
      local tokens = math.min(capacity, tonumber(level) + (now - since) / 1000000 * refill + 1)
      local full = math.min(31536000000, math.ceil((capacity - tokens) / refill * 1000)) + 1
      redis.call('SET', key, string.format('%.17g %.0f', tokens, now), 'PX', string.format('%.0f', full))
    end
  elseif kind == 'f' then
    local kept, left = redis.call('GET', key), redis.call('PTTL', key)
    if kept and left > 0 then
      local window, draws = string.match(kept, '^(%d+) (%d+)$')
      if tonumber(window) == tonumber(ARGV[at + 4]) and tonumber(draws) > 0 then
        redis.call('SET', key, string.format('%s %.0f', window, tonumber(draws) - 1), 'PX', left)
      end
    end
  end
end
return 0
