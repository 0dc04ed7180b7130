mod automaton;
