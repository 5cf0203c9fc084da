-- Drop a lease that is still the caller's. KEYS: 1 lease. ARGV: 1 token.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
