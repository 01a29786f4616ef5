-- What is kept of a call from a number on.
-- KEYS: the call and its entries, as append.lua keeps them. ARGV: the number.
-- Answers false where no log was begun, else {the log, the number that comes next, the entries from that number on, and where it asks
-- for what is gone the number and the entry of each open one that came before the others}.
local known = redis.call('HMGET', KEYS[1], 'log', 'next')
if not known[1] then return false end
local count = tonumber(known[2]) - tonumber(ARGV[1])
if count <= 0 then return {known[1], known[2], {}, {}} end
-- From the end, so that what is older than all of them asks for all.
local entries = redis.call('LRANGE', KEYS[2], string.format('%.0f', -count), -1)
local pinned = {}
if count > #entries then
  local fields = redis.call('HGETALL', KEYS[1])
  for i = 1, #fields, 2 do
    local number = string.match(fields[i], '^q(%d+)$')
    if number then
      table.insert(pinned, number)
      table.insert(pinned, fields[i + 1])
    end
  end
end
return {known[1], known[2], entries, pinned}
