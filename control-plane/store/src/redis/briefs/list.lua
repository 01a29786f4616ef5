-- Reads records of a list, those that ended last first.
-- KEYS: the list, a sorted set of calls by the time of their end.
-- ARGV: the time and the call before which the records are, "+inf" and nothing for all; most records; the beginning of all
-- keys of the org.
-- Answers call, time and record of each.
local found, most = {}, 3 * tonumber(ARGV[3])
local listed = redis.call('ZREVRANGEBYSCORE', KEYS[1], ARGV[1], '-inf', 'WITHSCORES')
for i = 1, #listed, 2 do
  local call, ended = listed[i], listed[i + 1]
  -- The time of one may be over before that of the list.
  local record = (ended ~= ARGV[1] or call < ARGV[2]) and redis.call('GET', ARGV[4] .. call)
  if record then
    found[#found + 1] = call
    found[#found + 1] = ended
    found[#found + 1] = record
    if #found >= most then break end
  end
end
return found
